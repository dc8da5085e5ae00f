"""Write down what happens to a task: one row per event, in the order that every reader will see.

The one rule here: a process that changes a task has locked its row before (`hold_task`), in every flow before any
other row of the task. So events are numbered without gaps, and a status never overtakes the artifact it was said
after. Nothing follows a terminal state; `log.py` and the callers check that before they write.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Select, func, insert, select, update

from shared.a2a.push.deliveries import deliver
from shared.a2a.tables import task_events, task_messages, task_push_configurations, tasks
from shared.a2a.tasks.artifacts import fold_artifacts
from shared.a2a.turns.updates import ArtifactProduced, StatusChanged
from shared.a2a.types import (
    Message,
    StreamResponse,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from shared.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTask:
    """A task's row as it was when this transaction locked it, and the database's clock in milliseconds."""

    id: UUID
    context_id: str
    organization_id: UUID
    deployment_id: UUID
    caller_id: UUID
    principal_id: UUID
    state: TaskState
    is_visible: bool
    last_sequence: int
    created_at: datetime
    now: datetime


_NOW = func.date_trunc("milliseconds", func.clock_timestamp())
_TASK = select(
    tasks.c.id,
    tasks.c.context_id,
    tasks.c.organization_id,
    tasks.c.deployment_id,
    tasks.c.caller_id,
    tasks.c.principal_id,
    tasks.c.state,
    tasks.c.is_visible,
    tasks.c.last_sequence,
    tasks.c.created_at,
    _NOW.label("now"),
)


def find_and_hold_task(session: Session, task_id: UUID) -> HeldTask | None:
    """Lock a task's row until the end of the transaction."""
    return _read_held(session, _TASK.where(tasks.c.id == task_id).with_for_update())


def find_and_hold_free_task(session: Session, task_id: UUID) -> HeldTask | None:
    """Lock a task's row unless somebody else holds it."""
    return _read_held(session, _TASK.where(tasks.c.id == task_id).with_for_update(skip_locked=True))


def _read_held(session: Session, statement: Select[Any]) -> HeldTask | None:
    row = session.execute(statement).one_or_none()
    return HeldTask(**row._asdict() | {"state": TaskState(row.state)}) if row is not None else None


def record_status(session: Session, task: HeldTask, change: StatusChanged) -> None:
    """Move the task to a state, with what the agent says about it."""
    number, message = None, None
    if change.message is not None:
        message = belonging(change.message, task)
        number = add_message(session, task.id, message)
    values: dict[str, Any] = {
        "state": change.state,
        "status_message": number,
        "status_at": task.now,
        "is_visible": True,
    }
    if change.state.is_terminal:
        made = fold_artifacts(session, task.id) if task.last_sequence else ()
        values["artifacts"] = [artifact.to_wire() for artifact in made]
    status = TaskStatus(state=change.state, message=message, timestamp=task.now)
    event = TaskStatusUpdateEvent(
        task_id=str(task.id), context_id=task.context_id, status=status, metadata=_plain(change.metadata)
    )
    _record(session, task, "status", StreamResponse(status_update=event), values)


def record_artifact(session: Session, task: HeldTask, produced: ArtifactProduced) -> None:
    """Add an artifact, or more of one."""
    event = TaskArtifactUpdateEvent(
        task_id=str(task.id),
        context_id=task.context_id,
        artifact=produced.artifact,
        append=produced.append,
        last_chunk=produced.last_chunk,
        metadata=_plain(produced.metadata),
    )
    _record(session, task, "artifact", StreamResponse(artifact_update=event), {"is_visible": True})


def record_reply(session: Session, task: HeldTask, message: Message) -> int:
    """End a task that its client never saw with a message in its place; give the message's number."""
    reply = message.model_copy(update={"context_id": task.context_id, "task_id": None})
    number = add_message(session, task.id, reply)
    values = {"state": TaskState.COMPLETED, "status_message": number, "status_at": task.now}
    _record(session, task, "message", StreamResponse(message=reply), values)
    return number


def add_message(session: Session, task_id: UUID, message: Message) -> int:
    """Add to what was said in a task; give the message's number."""
    counted = update(tasks).where(tasks.c.id == task_id).values(last_message=tasks.c.last_message + 1)
    number = int(session.execute(counted.returning(tasks.c.last_message)).scalar_one())
    session.execute(insert(task_messages).values(task_id=task_id, number=number, message=message.to_wire()))
    return number


def belonging(message: Message, task: HeldTask) -> Message:
    """Give a message the ids of its task, whatever it was made with."""
    return message.model_copy(update={"task_id": str(task.id), "context_id": task.context_id})


def _record(
    session: Session, task: HeldTask, kind: str, event: StreamResponse, values: Mapping[str, Any]
) -> None:
    counted = update(tasks).where(tasks.c.id == task.id)
    counted = counted.values(last_sequence=tasks.c.last_sequence + 1, **values)
    # Asked with the row locked, of a statement begun since: a configuration that was made before is seen.
    is_followed = select(1).where(task_push_configurations.c.task_id == tasks.c.id).exists()
    row = session.execute(counted.returning(tasks.c.last_sequence, is_followed.label("is_followed"))).one()
    wire = event.to_wire()
    session.execute(
        insert(task_events).values(task_id=task.id, sequence=row.last_sequence, kind=kind, event=wire)
    )
    if row.is_followed and kind != "message":
        deliver(session, task.id, task.organization_id, wire)


def _plain(metadata: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return dict(metadata) if metadata is not None else None
