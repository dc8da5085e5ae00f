"""Retention: which deadlines a file of each purpose may have, and who may move a deadline.

`POLICIES` has all limits, and `check_deadline` enforces them. Every write of a deadline calls `check_deadline`: an
upload, the beginning and the completion of a resumable upload, an import, and a renewal. `_find_renewal_refusal`
decides whether a file can be renewed at all; the renewal, the metadata and the console use its result
(docs/specification/files.md#retention).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from sqlalchemy import func, select, update

from shared import failpoints
from shared.db.database import Database, Session
from shared.errors import DomainError, FieldError, ValidationFailed
from shared.files.access import get_file, is_unexpired, lock_file, refuse_ended
from shared.files.errors import RetentionIsIndefinite, RetentionRenewalNotSupported, RetentionShortened
from shared.files.resources import Availability, File, Purpose
from shared.files.tables import files
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.directory.distributions import MAX_MEDIA_RETENTION_DAYS


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """The limits of retention for the files of one purpose."""

    is_renewable: bool
    max_days: int | None = None
    """The longest time from now to a deadline, in days. None permits any deadline and indefinite retention."""


POLICIES: Mapping[Purpose, RetentionPolicy] = {
    Purpose.AGENT_ARTIFACT: RetentionPolicy(is_renewable=True),
    # Messaging media is kept for a limited number of days, which its distribution sets, and cannot be renewed.
    Purpose.MESSAGING_MEDIA: RetentionPolicy(is_renewable=False, max_days=MAX_MEDIA_RETENTION_DAYS),
}
RENEWAL_ERRORS: tuple[type[DomainError], ...] = (
    RetentionShortened,
    RetentionIsIndefinite,
    RetentionRenewalNotSupported,
)
"""The errors of `renew` except the errors of access. The description of the route lists them."""


def check_deadline(
    purpose: Purpose, deadline: datetime | None, *, now: datetime, location: str = "query"
) -> None:
    """Raise ValidationFailed unless a file of this purpose may get this deadline; None is indefinite retention.

    `now` is the database's clock; `location` is the part of the request that has `retentionExpiresAt`.
    """
    max_days = POLICIES[purpose].max_days
    if deadline is None:
        if max_days is not None:
            raise _wrong_deadline(f"must be at most {max_days} days from now", location)
        return
    if deadline <= now:
        raise _wrong_deadline("must be in the future", location)
    if max_days is not None and deadline > now + timedelta(days=max_days):
        raise _wrong_deadline(f"must be at most {max_days} days from now", location)


def can_renew(caller: Caller, file: File) -> bool:
    """Return whether the caller may renew a file that has not ended."""
    permissions = caller.permissions_on(organization_id=file.organization_id, owner_id=file.owner_id)
    return Permission.FILE_UPDATE in permissions and _find_renewal_refusal(file) is None


def get_renewable(session: Session, caller: Caller, file_id: UUID, *, pending: Availability) -> File:
    """Return a file that may be renewed now.

    Raises FileNotFound, PermissionDenied, RetentionRenewalNotSupported, FileExpired, FileDeleted.
    """
    file = get_file(session, caller, file_id, Permission.FILE_UPDATE, pending=pending)
    refusal = _find_renewal_refusal(file)
    if refusal is not None:
        raise refusal
    refuse_ended(file)
    return file


def renew(
    database: Database, actor: Actor, file_id: UUID, deadline: datetime | None, *, pending: Availability
) -> File:
    """Move the deadline to a later time, or to None for indefinite retention, and record the actor.

    A renewal to the present deadline changes nothing.

    Raises what `get_renewable` raises, RetentionIsIndefinite, RetentionShortened, and ValidationFailed as
    `check_deadline` does.
    """
    caller = actor.caller
    with database.transaction() as session:
        # Lock the row before reading it: a sweep that expires the file now has either committed or waits for this lock.
        lock_file(session, file_id)
        file = get_renewable(session, caller, file_id, pending=pending)
        _check_renewal(session, file, deadline)
        if not _update_deadline(session, file_id, deadline):
            # The deadline passed between the check and the update: raise what an ended file raises.
            refuse_ended(get_file(session, caller, file_id, Permission.FILE_UPDATE, pending=pending))
        if deadline != file.retention_expires_at:
            _record(session, actor, file, deadline)
        failpoints.hit("renew.before_commit")
        file = get_file(session, caller, file_id, Permission.FILE_UPDATE, pending=pending)
    failpoints.hit("renew.committed")
    return file


def _find_renewal_refusal(file: File) -> DomainError | None:
    """Return why a file can never be renewed; None if it can.

    The caller checks permissions and whether the file has ended.
    """
    if not POLICIES[file.purpose].is_renewable:
        return RetentionRenewalNotSupported()
    return None


def _check_renewal(session: Session, file: File, deadline: datetime | None) -> None:
    """Raise an error if the new deadline is earlier than the present deadline or is not permitted."""
    if deadline is not None:
        if file.retention_expires_at is None:
            raise RetentionIsIndefinite
        if deadline < file.retention_expires_at:
            raise RetentionShortened
    # Read the present time, not the time of the transaction's start: the wait for the row's lock may have taken long.
    now = session.execute(select(func.clock_timestamp())).scalar_one()
    check_deadline(file.purpose, deadline, now=now, location="body")


def _update_deadline(session: Session, file_id: UUID, deadline: datetime | None) -> bool:
    """Write the deadline. Return False if the file has ended since it was read."""
    statement = update(files).where(files.c.id == file_id, files.c.state == "Available", is_unexpired)
    return session.execute(statement.values(retention_expires_at=deadline)).rowcount == 1


def _record(session: Session, actor: Actor, file: File, deadline: datetime | None) -> None:
    """Record a renewal in the audit, because a renewal cannot be undone and longer retention costs more."""
    record(
        session,
        actor,
        "file.retention_renewed",
        file.id,
        organization_id=file.organization_id,
        retention_expires_at=None if deadline is None else deadline.isoformat(),
        instead_of=None if file.retention_expires_at is None else file.retention_expires_at.isoformat(),
    )


def _wrong_deadline(message: str, location: str) -> ValidationFailed:
    return ValidationFailed(
        f"The retention deadline {message}.",
        errors=[FieldError(location=location, name="retentionExpiresAt", message=message)],
    )
