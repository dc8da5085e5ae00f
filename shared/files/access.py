"""Find files within the caller's owner scope, and authorize the caller. Every other module obtains files here.

An agent reaches the files of the owner for which the agent acts. A user reaches the files of all owners of the active
organization, as far as the user's workspace role permits. A caller outside the scope gets FileNotFound, as for an id
that does not exist (docs/specification/files.md#permissions).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from sqlalchemy import Boolean, ColumnElement, Row, bindparam, case, func, literal_column, or_, select

from shared.db.database import Session
from shared.errors import ServiceUnavailable
from shared.files.errors import FileDeleted, FileExpired, FileNotFound, VersionNotFound
from shared.files.resources import Availability, File, Purpose, Version
from shared.files.tables import blobs, files, versions
from shared.identity.access.callers import Caller, Owner, OwnerKind
from shared.identity.access.permissions import Permission
from shared.identity.errors import OwnerRequired
from shared.pagination import Page

VERSIONS_LIMIT = 1000
"""The most versions on a page. Nearly every file has fewer versions, so one page lists them all."""
OVER_OWNER = "over the owner of the file"
Revalidate = Callable[[Caller], Caller]
"""Returns a caller with the rights that the database has now. If the caller was revoked, raises the error that a new
request of the caller would get."""


class AuthorityLost(Exception):
    """The caller of a write was revoked before the commit; the write was rolled back."""


# The clock at the moment of reading, not of the transaction's start: a wait for a lock may outlast a deadline.
UNEXPIRED = "(files.retention_expires_at IS NULL OR files.retention_expires_at > clock_timestamp())"
is_unexpired: ColumnElement[bool] = literal_column(UNEXPIRED, Boolean)
# Check for Deleted first: a deleted file may also be past its deadline. The blob matters only for a file that lives.
_availability = case(
    (files.c.state == "Deleted", "Deleted"),
    (or_(files.c.state == "Expired", ~is_unexpired), "Expired"),
    (blobs.c.state == "live", "Available"),
    else_="Pending",
).label("availability")
_columns = (
    files.c.id,
    files.c.organization_id,
    files.c.payer_id,
    files.c.purpose,
    files.c.owner_kind,
    files.c.owner_id,
    files.c.revision,
    files.c.retention_expires_at,
    # If no sweep has ended an expired file yet, report its deadline as its end.
    func.coalesce(files.c.ended_at, files.c.retention_expires_at).label("ended_at"),
    _availability,
    versions.c.id.label("version_id"),
    versions.c.file_name,
    versions.c.media_type,
    versions.c.byte_size,
    versions.c.content_sha256,
    versions.c.created_at,
    blobs.c.damaged_at,
)
_joined = files.join(versions, versions.c.id == files.c.current_version_id).outerjoin(
    blobs, blobs.c.version_id == versions.c.id
)
SELECT_FILE = select(*_columns).select_from(_joined)

# Built once: assembling a statement costs as much as running it.
_FILE = SELECT_FILE.where(files.c.id == bindparam("file_id"))
_FILE_LOCK = select(files.c.id).where(files.c.id == bindparam("file_id")).with_for_update()
# Compare the file id too: access to one file must not open a version of another file.
_VERSION = select(versions).where(
    versions.c.id == bindparam("version_id"), versions.c.file_id == bindparam("file_id")
)
_VERSIONS = (
    select(versions).where(versions.c.file_id == bindparam("file_id")).order_by(versions.c.revision.desc())
)
_LISTED_BEFORE = (
    select(versions.c.revision)
    .where(versions.c.id == bindparam("cursor"), versions.c.file_id == bindparam("file_id"))
    .scalar_subquery()
)


def get_file(
    session: Session, caller: Caller, file_id: UUID, permission: Permission, *, pending: Availability
) -> File:
    """Return a file on which the caller has this permission, in any state.

    `pending` is the availability to report for staged content: `Available` if the store can read it, else `Pending`.
    Raises FileNotFound outside the owner scope and PermissionDenied inside it.
    """
    row = session.execute(_FILE, {"file_id": file_id}).one_or_none()
    if row is None:
        raise FileNotFound
    file = read_file(row, pending)
    authorize(caller, permission, owner_id=file.owner_id, organization_id=file.organization_id)
    return file


def lock_file(session: Session, file_id: UUID) -> None:
    """Lock a file's row until the transaction ends, so that its state cannot change after the caller's checks."""
    session.execute(_FILE_LOCK, {"file_id": file_id})


def authorize(caller: Caller, permission: Permission, *, owner_id: UUID, organization_id: UUID) -> None:
    """Raise FileNotFound or PermissionDenied unless the caller has this permission on the files of an owner."""
    permissions = caller.permissions_on(organization_id=organization_id, owner_id=owner_id)
    if not _is_in_scope(caller, permissions, owner_id, organization_id):
        raise FileNotFound
    if permission not in permissions:
        raise caller.lacks(permission, where=OVER_OWNER)


def no_revalidation(caller: Caller) -> Caller:
    """Return the caller unchanged. Use this function for work that was not started by a request of the caller."""
    return caller


@contextmanager
def explain_denial(authorize_again: Callable[[], object]) -> Iterator[None]:
    """Translate AuthorityLost from the block into the error that a new request of the caller would get."""
    try:
        yield
    except AuthorityLost:
        authorize_again()
        # The caller has its rights again, after they changed twice during the reception. So a retry can succeed.
        raise ServiceUnavailable("The caller's rights changed while the content was stored; retry.") from None


def authorize_creation(caller: Caller) -> Owner:
    """Return the owner of new files. Raises OwnerRequired for users, PermissionDenied without FileCreate."""
    if caller.owner is None:
        raise OwnerRequired
    permissions = caller.permissions_on(
        organization_id=caller.owner.organization_id, owner_id=caller.owner.id
    )
    if Permission.FILE_CREATE not in permissions:
        raise caller.lacks(Permission.FILE_CREATE, where=OVER_OWNER)
    return caller.owner


def refuse_ended(file: File) -> None:
    """Raise FileExpired or FileDeleted if the file has ended."""
    if file.availability is Availability.DELETED:
        raise FileDeleted
    if file.availability is Availability.EXPIRED:
        raise FileExpired


def list_versions(
    session: Session, file_id: UUID, *, cursor: UUID | None = None, limit: int = VERSIONS_LIMIT
) -> Page[Version]:
    """Return a page of a file's versions, newest first. `cursor` is the id of the previous page's last version."""
    found = _VERSIONS if cursor is None else _VERSIONS.where(versions.c.revision < _LISTED_BEFORE)
    rows = session.execute(found.limit(limit + 1), {"file_id": file_id, "cursor": cursor}).all()
    listed = tuple(Version.of(row, row.id, row.file_id) for row in rows[:limit])
    return Page(items=listed, next_cursor=str(listed[-1].id) if len(rows) > limit else None)


def get_version(session: Session, file_id: UUID, version_id: UUID) -> Version:
    """Return a version of a file. Raises VersionNotFound if the file has no version with this id."""
    row = session.execute(_VERSION, {"version_id": version_id, "file_id": file_id}).one_or_none()
    if row is None:
        raise VersionNotFound
    return Version.of(row, row.id, row.file_id)


def _is_in_scope(
    caller: Caller, permissions: frozenset[Permission], owner_id: UUID, organization_id: UUID
) -> bool:
    """Return whether the caller may learn that the owner's files exist."""
    if caller.owner is not None:
        return caller.owner.id == owner_id
    # Without FileRead a user gets 404 and not 403, so that file ids cannot be probed.
    return caller.organization_id == organization_id and Permission.FILE_READ in permissions


def read_file(row: Row[Any], pending: Availability) -> File:
    """Build a file from a row of `SELECT_FILE`."""
    availability = Availability(row.availability)
    return File(
        id=row.id,
        organization_id=row.organization_id,
        payer_id=row.payer_id,
        purpose=Purpose(row.purpose),
        owner_kind=OwnerKind(row.owner_kind),
        owner_id=row.owner_id,
        availability=pending if availability is Availability.PENDING else availability,
        revision=row.revision,
        retention_expires_at=row.retention_expires_at,
        ended_at=row.ended_at if availability in (Availability.EXPIRED, Availability.DELETED) else None,
        version=Version.of(row, row.version_id, row.id),
        is_damaged=row.damaged_at is not None,
    )
