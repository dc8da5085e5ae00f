"""Read grants: tokens that let any bearer read one version for a limited time (docs/specification/files.md#grants).

Only the token's hash is stored. At each use of a token, one statement checks the grant, the database's clock and the
file's state. So a deletion, an expiry or a revocation takes effect in every process as soon as it is committed.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, and_, bindparam, func, or_, select, text

from shared.db.database import Database, Session
from shared.files.access import UNEXPIRED, get_file, get_version, is_unexpired, refuse_ended
from shared.files.errors import FileNotFound, GrantExpired, GrantNotFound
from shared.files.references import ReferenceKind
from shared.files.resources import Availability, Content, ReadGrant, Version
from shared.files.tables import blobs, files, read_grants, versions
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import ExecutorKind
from shared.identity.access.permissions import Permission
from shared.identity.audit import RECORD_EVENT, event_parameters, record
from shared.identity.errors import OrganizationSuspended
from shared.identity.secrets import Prefix, Secret, derive, hash_secret, is_well_formed, issue
from shared.identity.tables import organizations
from shared.ids import new_id
from shared.pagination import Page, Position, descending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A version that a resource shows to its readers, and the lifetime of the links to the version."""

    file_id: UUID
    version_id: UUID
    kind: ReferenceKind
    reference_id: str
    ttl: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link that lets any bearer read a version that a resource shows, and the time when the link ends."""

    token: str = field(repr=False)
    access_expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedGrant:
    """A read grant without its token; `created_by` is the identity or user that created it."""

    grant_id: UUID
    file_id: UUID
    version_id: UUID
    created_by: UUID
    created_at: datetime
    access_expires_at: datetime
    revoked_at: datetime | None


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
_GRANT_TO_READERS = text(
    f"""
WITH subject AS (
    SELECT files.id, files.owner_id,
        LEAST(CAST(:ends_at AS timestamptz), files.retention_expires_at) AS access_expires_at
    FROM files
    JOIN file_versions ON file_versions.file_id = files.id AND file_versions.id = :version_id
    JOIN file_references ON file_references.file_id = files.id
        AND file_references.kind = :kind AND file_references.reference_id = :reference_id
    WHERE files.id = :file_id AND files.state = 'Available'
        AND {UNEXPIRED}
),
made AS (
    INSERT INTO read_grants (id, token_hash, file_id, version_id, created_by, access_expires_at)
    SELECT :id, :token_hash, id, :version_id, owner_id, access_expires_at FROM subject WHERE access_expires_at = :named
    ON CONFLICT (token_hash) DO NOTHING
)
SELECT access_expires_at,
    EXISTS (SELECT FROM read_grants WHERE token_hash = :token_hash AND revoked_at IS NOT NULL) AS is_revoked
FROM subject
"""  # noqa: S608 (constants)
)
MAX_LINKS = 20
"""The most links of one period. If all of them were revoked, readers get no link until the next period."""

_is_valid = and_(
    read_grants.c.revoked_at.is_(None),
    read_grants.c.access_expires_at > func.clock_timestamp(),
    files.c.state == "Available",
    is_unexpired,
)
_GRANTED = (
    select(
        versions,
        files.c.organization_id,
        _is_valid.label("is_valid"),
        organizations.c.suspended_at.is_not(None).label("is_suspended"),
        blobs.c.state.label("blob_state"),
        blobs.c.damaged_at,
    )
    .select_from(read_grants.join(versions, versions.c.id == read_grants.c.version_id))
    .join(files, files.c.id == versions.c.file_id)
    .join(organizations, organizations.c.id == files.c.organization_id)
    .outerjoin(blobs, blobs.c.version_id == versions.c.id)
    .where(read_grants.c.token_hash == bindparam("token_hash"), read_grants.c.file_id == bindparam("file_id"))
)
# Use the earlier of the two ends, because the file's retention may end before the grant. LEAST ignores a NULL.
_GRANT = text(
    f"""
WITH made AS (
    INSERT INTO read_grants (id, token_hash, file_id, version_id, created_by, access_expires_at)
    VALUES (:id, :token_hash, :file_id, :version_id, :created_by,
        LEAST(now() + CAST(:ttl AS interval), CAST(:retention_expires_at AS timestamptz)))
    RETURNING access_expires_at
),
audit AS ({RECORD_EVENT} FROM made)
SELECT access_expires_at FROM made
"""  # noqa: S608 (constants)
)


_STANDING = (
    select(
        or_(read_grants.c.revoked_at.is_not(None), files.c.state == "Deleted").label("is_revoked"),
        organizations.c.suspended_at.is_not(None).label("is_suspended"),
    )
    .select_from(read_grants.join(files, files.c.id == read_grants.c.file_id))
    .join(organizations, organizations.c.id == files.c.organization_id)
    .where(read_grants.c.token_hash == bindparam("token_hash"))
)


def create_grant(
    database: Database, actor: Actor, file_id: UUID, version_id: UUID, ttl_seconds: int
) -> ReadGrant:
    """Create a grant on a version, and record the actor. The grant ends when the file's retention ends, or earlier.

    Raises FileNotFound, PermissionDenied, VersionNotFound, FileExpired, FileDeleted.
    """
    # Issue an id besides the token: lists show the id, which is not secret. The token is returned only here.
    token, grant_id = issue(Prefix.GRANT), new_id()
    with database.autocommit() as session:
        file = get_file(session, actor.caller, file_id, Permission.FILE_UPDATE, pending=Availability.PENDING)
        refuse_ended(file)
        if version_id != file.version.id:
            get_version(session, file_id, version_id)
        values = {
            "id": grant_id,
            "token_hash": token.hash,
            "file_id": file_id,
            "version_id": version_id,
            "created_by": actor.caller.executor.id,
            "ttl": timedelta(seconds=ttl_seconds),
            "retention_expires_at": file.retention_expires_at,
            **event_parameters(
                actor,
                "read_grant.created",
                grant_id,
                organization_id=file.organization_id,
                file_id=file_id,
                version_id=version_id,
                ttl_seconds=ttl_seconds,
            ),
        }
        made = session.execute(_GRANT, values).one()
    return ReadGrant(
        id=grant_id,
        file_id=file_id,
        version_id=version_id,
        token=token.value,
        access_expires_at=made.access_expires_at,
        retention_expires_at=file.retention_expires_at,
    )


def grant_to_readers(session: Session, reading: Reading, *, key: bytes, now: datetime) -> Link | None:
    """Return the current link for readers of the resource that refers to a file.

    Return None if the file has ended, or if the resource does not refer to the file. Calls return the same link for
    half of the link's lifetime: the link's token is derived from the key and the link's end, so the resource need not
    store the token. A file whose retention was renewed gets another link.
    """
    ends_at = _end_of_period(reading.ttl, now)
    named, revoked = ends_at, 0
    for _ in range(MAX_LINKS):
        token = _token_to_readers(reading, key, named, revoked)
        values = {
            "id": new_id(),
            "token_hash": token.hash,
            "file_id": reading.file_id,
            "version_id": reading.version_id,
            "kind": reading.kind.value,
            "reference_id": reading.reference_id,
            "ends_at": ends_at,
            "named": named,
        }
        row = session.execute(_GRANT_TO_READERS, values).one_or_none()
        if row is None:
            return None
        if row.access_expires_at != named:
            # The file ends before the period does. Repeat with the file's end, from which the token is then derived.
            named = row.access_expires_at
        elif row.is_revoked:
            revoked += 1
        else:
            return Link(token=token.value, access_expires_at=named)
    return None


def _end_of_period(ttl: timedelta, now: datetime) -> datetime:
    """Return the end of the current link's lifetime: between half of `ttl` and the whole `ttl` after `now`."""
    # All readers within half a lifetime compute the same moment, and so the same token.
    period = ttl.total_seconds() / 2
    return datetime.fromtimestamp((int(now.timestamp() / period) + 2) * period, tz=UTC)


def _token_to_readers(reading: Reading, key: bytes, ends_at: datetime, revoked: int) -> Secret:
    """Return the token of the link with this end. `revoked` is the number of earlier links that were revoked."""
    suffix = f"/{revoked}" if revoked else ""
    return derive(
        Prefix.GRANT,
        key,
        f"{reading.file_id}/{reading.version_id}/{ends_at.astimezone(UTC).isoformat()}{suffix}",
    )


def get_granted_content(session: Session, file_id: UUID, token: str) -> Content:
    """Return the version that a token opens.

    Raises GrantNotFound if this file has no grant with this token, GrantExpired if the grant has ended, and
    OrganizationSuspended if the organization of the grant's creator is suspended.
    """
    # Refuse a malformed token without a query.
    if not is_well_formed(token, Prefix.GRANT):
        raise GrantNotFound
    row = session.execute(_GRANTED, {"token_hash": hash_secret(token), "file_id": file_id}).one_or_none()
    if row is None:
        raise GrantNotFound
    if not row.is_valid or row.blob_state is None:
        raise GrantExpired
    if row.is_suspended:
        raise OrganizationSuspended
    return Content(
        organization_id=row.organization_id,
        version=Version.of(row, row.id, row.file_id),
        is_placed=row.blob_state == "live",
        is_damaged=row.damaged_at is not None,
    )


def require_unrevoked(database: Database, token: str) -> None:
    """Check that a download that began with a token may continue. The token's expiry does not stop the download.

    Raises GrantExpired if the grant was revoked or its file deleted, OrganizationSuspended, ServiceUnavailable.
    """
    with database.autocommit() as session:
        row = session.execute(_STANDING, {"token_hash": hash_secret(token)}).one_or_none()
    if row is None:
        # A purge deletes a grant a day after the grant expired, and an expired grant does not stop a download.
        return
    if row.is_revoked:
        raise GrantExpired
    if row.is_suspended:
        raise OrganizationSuspended


def list_grants(
    session: Session, *, actor: Actor, file_id: UUID, **page: Unpack[Position]
) -> Page[ListedGrant]:
    """Return a page of the grants of a file, newest first. A grant is listed until one day after the grant's end.

    Raises FileNotFound, PermissionDenied.
    """
    _authorize(session, actor, file_id)
    statement = select(*_columns).where(_table.file_id == file_id)
    return paginate(session, statement, descending(_table.id), _grant, **page)


def revoke_grant(session: Session, *, actor: Actor, file_id: UUID, grant_id: UUID) -> ListedGrant:
    """Revoke a grant; a repeated call changes nothing. Raises FileNotFound, PermissionDenied, GrantNotFound."""
    organization_id = _authorize(session, actor, file_id)
    mine = (_table.id == grant_id, _table.file_id == file_id)
    # Lock the row, so that only the first of two concurrent revocations is recorded.
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
    """Return the id of the file's organization.

    Raises FileNotFound or PermissionDenied if the actor may not manage the file's grants.
    """
    if actor.caller.executor.kind is not ExecutorKind.OPERATOR:
        file = get_file(session, actor.caller, file_id, Permission.FILE_UPDATE, pending=Availability.PENDING)
        return file.organization_id
    # Skip the owner scope for an operator at the command line, who manages all grants but reads no content.
    statement = select(files.c.organization_id).where(files.c.id == file_id)
    organization_id: UUID | None = session.execute(statement).scalar_one_or_none()
    if organization_id is None:
        raise FileNotFound
    return organization_id


def _grant(row: Row[Any]) -> ListedGrant:
    fields = row._asdict()
    return ListedGrant(grant_id=fields.pop("id"), **fields)
