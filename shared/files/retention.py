"""Renew a file's retention: later or for ever, never earlier, and never after the end.

One conditional UPDATE under the row's lock decides, by the database's clock; renewal and sweep may race at the
deadline, and an expired file never comes back (docs/specification/files.md#retention).
"""

from datetime import datetime
from uuid import UUID

from sqlalchemy import func, or_, select, update

from shared import failpoints
from shared.db.database import Database, Session
from shared.errors import FieldError, ValidationFailed
from shared.files.access import get_file, lock_file, refuse_ended
from shared.files.errors import RetentionIsIndefinite, RetentionRenewalNotSupported, RetentionShortened
from shared.files.resources import Availability, File
from shared.files.tables import files
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller
from shared.identity.access.permissions import Permission
from shared.identity.audit import record


def get_renewable(session: Session, caller: Caller, file_id: UUID, *, pending: Availability) -> File:
    """Get a file whose retention may be renewed now.

    Raises FileNotFound, PermissionDenied, RetentionRenewalNotSupported, FileExpired, FileDeleted.
    """
    file = get_file(session, caller, file_id, Permission.FILE_UPDATE, pending=pending)
    if not file.purpose.supports_renewal:
        raise RetentionRenewalNotSupported
    refuse_ended(file)
    return file


def renew(
    database: Database, actor: Actor, file_id: UUID, deadline: datetime | None, *, pending: Availability
) -> File:
    """Move the deadline to a later time, or to None for indefinite retention, and record by whom; idempotent.

    Raises what `get_renewable` raises, RetentionIsIndefinite, RetentionShortened, ValidationFailed for a time that
    has passed.
    """
    caller = actor.caller
    with database.transaction() as session:
        lock_file(session, file_id)
        file = get_renewable(session, caller, file_id, pending=pending)
        _require_renewal(session, file, deadline)
        if not _set(session, file_id, deadline):
            refuse_ended(get_file(session, caller, file_id, Permission.FILE_UPDATE, pending=pending))
        if deadline != file.retention_expires_at:
            _record(session, actor, file, deadline)
        failpoints.hit("renew.before_commit")
        file = get_file(session, caller, file_id, Permission.FILE_UPDATE, pending=pending)
    failpoints.hit("renew.committed")
    return file


def _record(session: Session, actor: Actor, file: File, deadline: datetime | None) -> None:
    """Record a renewal: it cannot be taken back, and what is kept longer costs more."""
    record(
        session,
        actor,
        "file.retention_renewed",
        file.id,
        organization_id=file.organization_id,
        retention_expires_at=None if deadline is None else deadline.isoformat(),
        instead_of=None if file.retention_expires_at is None else file.retention_expires_at.isoformat(),
    )


def _require_renewal(session: Session, file: File, deadline: datetime | None) -> None:
    if deadline is None:
        return
    if file.retention_expires_at is None:
        raise RetentionIsIndefinite
    if deadline < file.retention_expires_at:
        raise RetentionShortened
    if deadline <= session.execute(select(func.clock_timestamp())).scalar_one():
        message = "must be in the future"
        raise ValidationFailed(
            errors=[FieldError(location="body", name="retentionExpiresAt", message=message)]
        )


def _set(session: Session, file_id: UUID, deadline: datetime | None) -> bool:
    unexpired = or_(
        files.c.retention_expires_at.is_(None), files.c.retention_expires_at > func.clock_timestamp()
    )
    statement = update(files).where(files.c.id == file_id, files.c.state == "Available", unexpired)
    return session.execute(statement.values(retention_expires_at=deadline)).rowcount == 1
