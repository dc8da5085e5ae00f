"""Delete expired rows: events of tasks that ended, tasks without recent changes, and old idempotency keys.

Events are deleted one day after their task's end. The task's artifacts, messages and status stay. A task is deleted
`TASK_RETENTION_DAYS` after its last change, with its references to files. The purge reads no content. A task may have
gigabytes, so a batch ends when its tasks exceed a size limit, and each statement deletes a limited number of bytes.
"""

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, delete, func, select, text, tuple_, update

from shared import failpoints
from shared.a2a.tables import ENDED_STATES, send_operations, tasks
from shared.db.database import Database, Session
from shared.files.references import ReferenceKind
from shared.files.tables import references
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain, run_in_batches

BATCH_SIZE = 100
PIECE_BYTES = 64 << 20
"""Bytes of JSON after which no further task joins a batch, and no further row a deleting statement."""
EVENTS_KEPT = timedelta(days=1)

# The database knows the length of a text without reading the text. The query locks the whole batch, but returns only
# the first tasks up to the size limit.
_DUE = """
WITH due AS MATERIALIZED (
    SELECT id, status_at, {bytes} AS bytes FROM tasks WHERE {condition}
    ORDER BY status_at, id LIMIT :limit FOR UPDATE SKIP LOCKED
)
SELECT id FROM (SELECT id, sum(bytes) OVER (ORDER BY status_at, id) - bytes AS bytes_before FROM due) sized
WHERE bytes_before < :bytes
"""
_EVENT_BYTES = "(SELECT coalesce(sum(octet_length(event)), 0) FROM task_events WHERE task_id = tasks.id)"
_MESSAGE_BYTES = (
    "(SELECT coalesce(sum(octet_length(message)), 0) FROM task_messages WHERE task_id = tasks.id)"
)
_TURN_BYTES = "(SELECT coalesce(sum(octet_length(request)), 0) FROM task_turns WHERE task_id = tasks.id)"
_DUE_EVENTS = text(
    _DUE.format(
        bytes=_EVENT_BYTES,
        condition=f"has_events AND state IN ({ENDED_STATES}) AND status_at < now() - :kept",
    )
)
_DUE_TASKS = text(
    _DUE.format(
        bytes=f"coalesce(octet_length(artifacts), 0) + {_EVENT_BYTES} + {_MESSAGE_BYTES} + {_TURN_BYTES}",
        condition="status_at < now() - :kept",
    )
)
_PIECE = """
DELETE FROM {table} WHERE ctid = ANY (ARRAY(
    SELECT ctid FROM (
        SELECT ctid, sum(octet_length({content})) OVER (ORDER BY ctid) - octet_length({content}) AS bytes_before
        FROM {table} WHERE task_id = ANY (CAST(:ids AS uuid[]))
    ) held WHERE bytes_before < :bytes
))
"""
_EVENTS = text(_PIECE.format(table="task_events", content="event"))
_MESSAGES = text(_PIECE.format(table="task_messages", content="message"))
_TURNS = text(_PIECE.format(table="task_turns", content="request"))


@sweep("agents.purge_tasks", queue=RETENTION, every_seconds=3600)
def _sweep_tasks(context: Context) -> int:
    settings = context.settings
    return purge_tasks(
        context.database, task_days=settings.task_retention_days, key_days=settings.operation_retention_days
    )


def purge_tasks(database: Database, *, task_days: int, key_days: int) -> int:
    """Delete expired keys, events and tasks. Return the number of tasks."""
    key = send_operations.primary_key
    old = select(*key).where(send_operations.c.created_at < func.now() - timedelta(days=key_days))
    forget = delete(send_operations).where(tuple_(*key).in_(old.limit(bindparam("limit"))))
    run_in_batches(database, forget, size=BATCH_SIZE)
    # Purge events before tasks: then most bytes of a task are already gone when the task is deleted.
    _drain(database, _purge_events)
    purged = _drain(database, partial(_purge_tasks, kept=timedelta(days=task_days)))
    SWEPT.labels("tasks").inc(purged)
    return purged


def _drain(database: Database, purge: Callable[[Session], int]) -> int:
    """Purge batches until no task is due. A short batch does not mean the end: a batch of large tasks is short too."""

    def batch() -> int:
        with database.transaction() as session:
            purged = purge(session)
        failpoints.hit("tasks.purged")
        return purged

    return drain(batch, size=1)


def _purge_events(session: Session) -> int:
    ids = _take_due(session, _DUE_EVENTS, EVENTS_KEPT)
    _delete_pieces(session, _EVENTS, ids)
    session.execute(update(tasks).where(tasks.c.id.in_(ids)).values(has_events=False))
    return len(ids)


def _purge_tasks(session: Session, *, kept: timedelta) -> int:
    ids = _take_due(session, _DUE_TASKS, kept)
    held = references.c.reference_id.in_([str(task_id) for task_id in ids])
    session.execute(delete(references).where(held, references.c.kind == ReferenceKind.TASK.value))
    # Delete the content in pieces before the task: ON DELETE CASCADE would delete gigabytes in one statement.
    for content in (_EVENTS, _TURNS, _MESSAGES):
        _delete_pieces(session, content, ids)
    session.execute(delete(tasks).where(tasks.c.id.in_(ids)))
    return len(ids)


def _take_due(session: Session, due: Any, kept: timedelta) -> Sequence[UUID]:
    """Lock the tasks that have been due for the longest time. Return the first tasks, up to `PIECE_BYTES` in total."""
    values = {"kept": kept, "limit": BATCH_SIZE, "bytes": PIECE_BYTES}
    return session.execute(due, values).scalars().all()


def _delete_pieces(session: Session, piece: Any, task_ids: Sequence[UUID]) -> None:
    values = {"ids": list(task_ids), "bytes": PIECE_BYTES}
    while session.execute(piece, values).rowcount:
        pass
