"""List the read grants of a file and revoke one: for those who may make them, and for operators.

A grant is looked up at every use (`grants.py`), so a revocation takes effect everywhere with its commit.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, func, select

from shared.db.database import Session
from shared.files.access import get_file
from shared.files.errors import FileNotFound, GrantNotFound
from shared.files.resources import Availability
from shared.files.tables import files, read_grants
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import ExecutorKind
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.pagination import Page, Position, descending, paginate

_table = read_grants.c
_columns = (
    _table.id,
    _table.file_id,
    _table.version_id,
    _table.created_by,
    _table.created_at,
    _table.access_expires_at,
    _table.revoked_at,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGrant:
    """A read grant without its token; `created_by` is the identity or user who made it."""

    grant_id: UUID
    file_id: UUID
    version_id: UUID
    created_by: UUID
    created_at: datetime
    access_expires_at: datetime
    revoked_at: datetime | None


def list_grants(
    session: Session, *, actor: Actor, file_id: UUID, **page: Unpack[Position]
) -> Page[ListedGrant]:
    """List the grants of a file, newest first, for a day after their end.

    Raises FileNotFound, PermissionDenied.
    """
    _authorize(session, actor, file_id)
    statement = select(*_columns).where(_table.file_id == file_id)
    return paginate(session, statement, descending(_table.id), _grant, **page)


def revoke_grant(session: Session, *, actor: Actor, file_id: UUID, grant_id: UUID) -> ListedGrant:
    """End a grant at once; revoking it again changes nothing. Raises FileNotFound, PermissionDenied, GrantNotFound."""
    organization_id = _authorize(session, actor, file_id)
    mine = (_table.id == grant_id, _table.file_id == file_id)
    # Locked, so that of two who revoke at once one is recorded.
    found = session.execute(select(*_columns).where(*mine).with_for_update()).one_or_none()
    if found is None:
        raise GrantNotFound("The file has no such read grant.")
    if found.revoked_at is not None:
        return _grant(found)
    revoked = read_grants.update().where(*mine).values(revoked_at=func.now()).returning(*_columns)
    grant = _grant(session.execute(revoked).one())
    record(
        session,
        actor,
        "read_grant.revoked",
        grant_id,
        organization_id=organization_id,
        file_id=file_id,
        version_id=grant.version_id,
    )
    return grant


def _authorize(session: Session, actor: Actor, file_id: UUID) -> UUID:
    """Give the organization of a file whose grants the actor may see and revoke."""
    if actor.caller.executor.kind is not ExecutorKind.OPERATOR:
        file = get_file(session, actor.caller, file_id, Permission.FILE_UPDATE, pending=Availability.PENDING)
        return file.organization_id
    # The command line sees links, as it sees all that is administered, and no content.
    statement = select(files.c.organization_id).where(files.c.id == file_id)
    organization_id: UUID | None = session.execute(statement).scalar_one_or_none()
    if organization_id is None:
        raise FileNotFound
    return organization_id


def _grant(row: Row[Any]) -> ListedGrant:
    fields = row._asdict()
    return ListedGrant(grant_id=fields.pop("id"), **fields)
