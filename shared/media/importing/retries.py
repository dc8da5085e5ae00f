"""Retry failed or paused imports at a caller's request."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, text, update

from shared.config.settings import Settings
from shared.db.database import Session
from shared.identity.access.authorization import Actor
from shared.identity.directory.distributions import get_managed_distribution, record_change
from shared.media.errors import ImportNotRetryable
from shared.media.importing.import_queue import refuse_excess
from shared.media.importing.imports import FetchMedia, Import, ImportState, get_import
from shared.media.tables import media_imports

MAX_RETRIED_IMPORTS = 500

_table = media_imports.c
_ENDED_BADLY = _table.state.in_([ImportState.FAILED.value, ImportState.HELD.value])
# Only an import that still has its location can be fetched again. The location is deleted when it is no longer needed.
_IS_KEPT = _table.location != text("'{}'::jsonb")
_QUEUED_AGAIN = {
    "state": ImportState.QUEUED.value,
    "is_ready": True,
    "due_at": func.now(),
    # Do not reset `attempts`, which is a fencing token and must never decrease. Subtract earlier attempts instead.
    "forgiven_attempts": _table.attempts,
    "ended_at": None,
    "forget_at": None,
}


def retry_import(
    session: Session, settings: Settings, *, actor: Actor, distribution_id: UUID, import_id: UUID
) -> Import:
    """Queue an import again. Raises ImportNotFound, ImportNotRetryable, TooManyImports and PermissionDenied."""
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    get_import(session, distribution_id=distribution_id, import_id=import_id)
    if not _queue_again(session, settings, distribution_id, [import_id]):
        raise ImportNotRetryable
    record_change(session, actor, "media_import.retried", distribution, import_id=import_id)
    return get_import(session, distribution_id=distribution_id, import_id=import_id)


def retry_imports(
    session: Session,
    settings: Settings,
    *,
    actor: Actor,
    distribution_id: UUID,
    state: ImportState | None = None,
    code: str | None = None,
    since: datetime | None = None,
) -> int:
    """Queue matching imports again, oldest first, up to MAX_RETRIED_IMPORTS. Return the number of imports.

    Raises TooManyImports and PermissionDenied.
    """
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    asked = {_table.state: state and state.value, _table.code: code}
    which: list[ColumnElement[bool]] = [
        column == value for column, value in asked.items() if value is not None
    ]
    if since is not None:
        which.append(_table.created_at >= since)
    matching = select(_table.id).where(
        _table.distribution_id == distribution_id, _ENDED_BADLY, _IS_KEPT, *which
    )
    ids = session.execute(matching.order_by(_table.id).limit(MAX_RETRIED_IMPORTS)).scalars().all()
    count = _queue_again(session, settings, distribution_id, ids)
    if count:
        record_change(session, actor, "media_imports.retried", distribution, count=count)
    return count


def _queue_again(session: Session, settings: Settings, distribution_id: UUID, ids: Collection[UUID]) -> int:
    queued = update(media_imports).where(
        _table.distribution_id == distribution_id, _table.id.in_(ids), _ENDED_BADLY, _IS_KEPT
    )
    count = int(session.execute(queued.values(_QUEUED_AGAIN)).rowcount)
    if count:
        refuse_excess(session, distribution_id, ImportState.QUEUED, settings.queued_imports)
        session.enqueue(FetchMedia())
    return count
