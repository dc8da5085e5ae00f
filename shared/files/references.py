"""References from resources to files. A file cannot be deleted while a resource refers to the file.

A reference gives neither ownership nor access (docs/specification/files.md#references).
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from uuid import UUID

from sqlalchemy import delete, select, text
from sqlalchemy.dialects.postgresql import insert

from shared.db.database import Database, Session
from shared.files.access import get_file, lock_file, refuse_ended
from shared.files.errors import ReferenceNotFound
from shared.files.resources import Availability, Reference
from shared.files.tables import references
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.audit import record

REFERENCE_LIMIT = 1000
REFERRED_LIMIT = 20


class ReferenceKind(StrEnum):
    """The kind of a resource that refers to a file."""

    TASK = "Task"
    CONVERSATION = "Conversation"
    MESSAGE = "Message"
    SCHEDULE = "Schedule"
    RESOURCE = "Resource"


def list_references(session: Session, file_id: UUID, *, limit: int = REFERENCE_LIMIT) -> list[Reference]:
    """Return the references to a file, oldest first, at most `limit` of them."""
    # Order by the id too: references that one transaction added have the same time.
    query = select(references).where(references.c.file_id == file_id)
    rows = session.execute(query.order_by(references.c.created_at, references.c.reference_id).limit(limit))
    return [
        Reference(kind=row.kind, reference_id=row.reference_id, created_at=row.created_at) for row in rows
    ]


def list_referred_files(
    session: Session, kind: ReferenceKind, reference_ids: Sequence[str]
) -> Mapping[str, Sequence[UUID]]:
    """Return a mapping from each resource's id to the ids of the files that it refers to, at most 20 per resource."""
    rows = session.execute(
        _REFERRED, {"kind": kind.value, "ids": list(reference_ids), "limit": REFERRED_LIMIT}
    )
    return {row.reference_id: row.files for row in rows}


def add_reference(
    database: Database, caller: Caller, file_id: UUID, kind: ReferenceKind, reference_id: str
) -> tuple[Reference, bool]:
    """Add a reference from a resource to a file. Return the reference, and whether it is new.

    Raises FileNotFound, PermissionDenied, FileExpired, FileDeleted.
    """
    with database.transaction() as session:
        # Authorize before locking too: a caller without rights must not wait for the row, nor make others wait.
        get_file(session, caller, file_id, Permission.FILE_UPDATE, pending=Availability.PENDING)
        # A delete takes the same lock: either it finds this reference, or this check finds the deletion.
        lock_file(session, file_id)
        refuse_ended(get_file(session, caller, file_id, Permission.FILE_UPDATE, pending=Availability.PENDING))
        is_new = refer(session, file_id, kind, reference_id)
        found = select(references).filter_by(file_id=file_id, kind=kind.value, reference_id=reference_id)
        added = session.execute(found).one()
        return Reference(
            kind=added.kind, reference_id=added.reference_id, created_at=added.created_at
        ), is_new


def refer(session: Session, file_id: UUID, kind: ReferenceKind, reference_id: str) -> bool:
    """Insert a reference to an available file whose row the caller has locked. Return whether the reference is new."""
    row = {"file_id": file_id, "kind": kind.value, "reference_id": reference_id}
    return session.execute(insert(references).values(row).on_conflict_do_nothing()).rowcount == 1


def remove_reference(
    database: Database, actor: Actor, file_id: UUID, kind: ReferenceKind, reference_id: str
) -> None:
    """Remove a reference to a file, and record the actor. After its last reference is removed, the file may be deleted.

    Raises FileNotFound, PermissionDenied, ReferenceNotFound.
    """
    with database.transaction() as session:
        file = get_file(session, actor.caller, file_id, Permission.FILE_UPDATE, pending=Availability.PENDING)
        row = {"file_id": file_id, "kind": kind.value, "reference_id": reference_id}
        if session.execute(delete(references).filter_by(**row)).rowcount == 0:
            raise ReferenceNotFound
        details = {"kind": kind.value, "reference_id": reference_id}
        record(
            session, actor, "file.reference_removed", file_id, organization_id=file.organization_id, **details
        )


_REFERRED = text("""
SELECT wanted.reference_id, array_agg(found.file_id ORDER BY found.created_at, found.file_id) AS files
FROM unnest(CAST(:ids AS text[])) AS wanted (reference_id) CROSS JOIN LATERAL (
    SELECT file_id, created_at FROM file_references
    WHERE reference_id = wanted.reference_id AND kind = :kind LIMIT :limit
) AS found
GROUP BY wanted.reference_id
""")
