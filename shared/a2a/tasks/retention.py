"""Forget what has had its use: events of tasks that ended, tasks that nobody touched for long, keys of old messages.

Events go a day after a task's end; its artifacts, messages and status stay. The task goes after `TASK_RETENTION_DAYS`
without a change, and with it its hold on the files it made.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import Text, bindparam, cast, delete, func, select, text, tuple_, union_all, update

from shared import failpoints
from shared.a2a.tables import ENDED_STATES, send_operations, task_events, task_messages, tasks
from shared.database import Database, Session
from shared.files.references import ReferenceKind
from shared.files.tables import references
from shared.jobs import Context, sweep
from shared.queues import RETENTION
from shared.sweeping import drain, run_in_batches
from shared.telemetry import SWEPT

BATCH_SIZE = 100
EVENTS_KEPT = timedelta(days=1)
_FILE = re.compile(r"/files/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/content")


@sweep("agents.purge_tasks", queue=RETENTION, every_seconds=3600)
def _sweep_tasks(context: Context) -> int:
    settings = context.settings
    return purge_tasks(
        context.database, task_days=settings.task_retention_days, key_days=settings.operation_retention_days
    )


def purge_tasks(database: Database, *, task_days: int, key_days: int) -> int:
    """Delete the tasks that are due; return how many."""
    _drain(database, _purge_events)
    purged = _drain(database, lambda session: _purge_tasks(session, timedelta(days=task_days)))
    key = send_operations.primary_key
    old = select(*key).where(send_operations.c.created_at < func.now() - timedelta(days=key_days))
    forget = delete(send_operations).where(tuple_(*key).in_(old.limit(bindparam("limit"))))
    run_in_batches(database, forget, size=BATCH_SIZE)
    SWEPT.labels("tasks").inc(purged)
    return purged


def _drain(database: Database, purge: Any) -> int:
    def batch() -> int:
        with database.transaction() as session:
            purged: int = purge(session)
        failpoints.hit("tasks.purged")
        return purged

    return drain(batch, size=BATCH_SIZE)


def _purge_events(session: Session) -> int:
    due = (
        select(tasks.c.id)
        .where(
            tasks.c.has_events,
            text(f"state IN ({ENDED_STATES})"),
            tasks.c.status_at < func.now() - EVENTS_KEPT,
        )
        .limit(BATCH_SIZE)
        .with_for_update(skip_locked=True)
    )
    ids = session.execute(due).scalars().all()
    session.execute(delete(task_events).where(task_events.c.task_id.in_(ids)))
    session.execute(update(tasks).where(tasks.c.id.in_(ids)).values(has_events=False))
    return len(ids)


def _purge_tasks(session: Session, kept: timedelta) -> int:
    due = (
        select(tasks.c.id)
        .where(tasks.c.status_at < func.now() - kept)
        .limit(BATCH_SIZE)
        .with_for_update(skip_locked=True)
    )
    ids = session.execute(due).scalars().all()
    _release_files(session, ids)
    session.execute(delete(tasks).where(tasks.c.id.in_(ids)))
    return len(ids)


def _release_files(session: Session, task_ids: Sequence[UUID]) -> None:
    """Delete the references to files whose addresses are in these tasks."""
    said = union_all(
        select(tasks.c.id.label("task_id"), cast(tasks.c.artifacts, Text).label("said")).where(
            tasks.c.id.in_(task_ids)
        ),
        select(task_messages.c.task_id, cast(task_messages.c.message, Text)).where(
            task_messages.c.task_id.in_(task_ids)
        ),
        select(task_events.c.task_id, cast(task_events.c.event, Text)).where(
            task_events.c.task_id.in_(task_ids)
        ),
    )
    held = {
        (UUID(file_id), str(row.task_id))
        for row in session.execute(said).all()
        for file_id in _FILE.findall(row.said or "")
    }
    for file_id, task_id in held:
        session.execute(
            delete(references).where(
                references.c.file_id == file_id,
                references.c.kind == ReferenceKind.TASK.value,
                references.c.reference_id == task_id,
            )
        )
