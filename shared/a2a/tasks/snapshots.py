"""A task as its caller sees it at one moment, put together from its rows.

The task's row is read first and says up to which event and message it speaks; what came later is left out. So a
snapshot and the events after its `sequence` never overlap and leave nothing out, without any lock.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Integer, Row, Uuid, and_, cast, func, select

from shared.a2a.agents.directory import Scope
from shared.a2a.tables import task_events, task_messages, tasks
from shared.a2a.tasks.artifacts import fold, fold_artifacts
from shared.a2a.tasks.events import HeldTask
from shared.a2a.types import Artifact, Message, Task, TaskState, TaskStatus
from shared.database import Session

MAXIMUM_HISTORY = 1000
HISTORY_BYTES = 32 << 20
"""What the messages of an answer may come to; the longest single one that is taken fits in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A task, and the number of the last event that is part of it; `has_events` until they are forgotten."""

    task: Task
    sequence: int
    has_events: bool = True


def find_snapshot(
    session: Session, scope: Scope, task_id: UUID, *, history_length: int | None = None
) -> Snapshot | None:
    """Read a task of this scope; None for those of others, absent ones, and those that never were shown as tasks."""
    statement = select(tasks).where(tasks.c.id == task_id, *in_scope(scope), tasks.c.is_visible)
    row = session.execute(statement).one_or_none()
    return _snapshot(session, row, history_length) if row is not None else None


def read_snapshot(session: Session, task_id: UUID, *, history_length: int | None) -> Snapshot:
    """Read a task of which it is known that it is there and the caller's."""
    row = session.execute(select(tasks).where(tasks.c.id == task_id)).one()
    return _snapshot(session, row, history_length)


def new_snapshot(task: HeldTask, message: Message, *, history_length: int | None) -> Snapshot:
    """Give a task as it is when its first message has been taken."""
    status = TaskStatus(state=task.state, timestamp=task.now)
    history = () if history_length == 0 else (message,)
    made = Task(id=str(task.id), context_id=task.context_id, status=status, history=history)
    return Snapshot(task=made, sequence=0)


def snapshots_of(
    session: Session, rows: Sequence[Row[Any]], *, history_length: int, with_artifacts: bool
) -> tuple[Task, ...]:
    """Read several tasks from their rows, in a fixed number of statements."""
    said = _said(session, rows, history_length)
    made = _artifacts_of(session, rows) if with_artifacts else {}
    return tuple(_task(row, said.get(row.id, {}), made.get(row.id, ()), history_length) for row in rows)


def in_scope(scope: Scope) -> tuple[Any, ...]:
    """Give the conditions that every look at a caller's tasks carries."""
    return (
        tasks.c.caller_id == scope.caller_id,
        tasks.c.principal_id == scope.principal_id,
        tasks.c.deployment_id == scope.deployment_id,
    )


def _snapshot(session: Session, row: Row[Any], history_length: int | None) -> Snapshot:
    said = _said(session, [row], history_length)
    task = _task(row, said.get(row.id, {}), _artifacts(session, row), history_length)
    return Snapshot(task=task, sequence=row.last_sequence, has_events=row.has_events)


def _said(
    session: Session, rows: Sequence[Row[Any]], history_length: int | None
) -> Mapping[UUID, Mapping[int, Message]]:
    """Read the last messages of some tasks, by their numbers: as many as are asked for, and the status's own.

    All of them together are no larger than `HISTORY_BYTES`; beyond that the older messages of the later tasks are
    left out. Sizes are looked at before any text is read.
    """
    length = MAXIMUM_HISTORY if history_length is None else min(history_length, MAXIMUM_HISTORY)
    asked = func.unnest(
        cast([row.id for row in rows], ARRAY(Uuid)),
        cast([row.last_message for row in rows], ARRAY(Integer)),
        cast([row.status_message for row in rows], ARRAY(Integer)),
        cast(list(range(len(rows))), ARRAY(Integer)),
    )
    task = asked.table_valued("id", "last", "status", "place", name="asked").render_derived()
    number, text = task_messages.c.number, task_messages.c.message
    so_far = func.sum(func.octet_length(text)).over(order_by=[task.c.place, number.desc()])
    sized = (
        select(task_messages.c.task_id, number, text, so_far.label("so_far"), task.c.status, task.c.place)
        .join(task, task.c.id == task_messages.c.task_id)
        .where(number.between(task.c.last - length, task.c.last) | (number == task.c.status))
        .subquery()
    )
    statement = (
        select(sized.c.task_id, sized.c.number, sized.c.message)
        .where((sized.c.so_far <= HISTORY_BYTES) | (sized.c.number == sized.c.status))
        .order_by(sized.c.place, sized.c.number)
    )
    said: dict[UUID, dict[int, Message]] = {}
    for row in session.execute(statement).all():
        said.setdefault(row.task_id, {})[row.number] = Message.model_validate(row.message)
    return said


def _task(
    row: Row[Any], said: Mapping[int, Message], artifacts: Sequence[Artifact], history_length: int | None
) -> Task:
    length = MAXIMUM_HISTORY if history_length is None else min(history_length, MAXIMUM_HISTORY)
    history = [
        message
        for number, message in said.items()
        if number <= row.last_message and number != row.status_message
    ]
    status = TaskStatus(
        state=TaskState(row.state), message=said.get(row.status_message), timestamp=row.status_at
    )
    return Task(
        id=str(row.id),
        context_id=row.context_id,
        status=status,
        artifacts=tuple(artifacts),
        history=tuple(history[-length:] if length else ()),
    )


def _artifacts(session: Session, row: Row[Any]) -> tuple[Artifact, ...]:
    if row.artifacts is not None:
        return _stored(row)
    return fold_artifacts(session, row.id, up_to_sequence=row.last_sequence)


def _artifacts_of(session: Session, rows: Sequence[Row[Any]]) -> Mapping[UUID, tuple[Artifact, ...]]:
    made = {row.id: _stored(row) for row in rows if row.artifacts is not None}
    running = {row.id: row.last_sequence for row in rows if row.artifacts is None}
    statement = (
        select(task_events.c.task_id, task_events.c.sequence, task_events.c.event)
        .where(and_(task_events.c.task_id.in_(running), task_events.c.kind == "artifact"))
        .order_by(task_events.c.task_id, task_events.c.sequence)
    )
    events: dict[UUID, list[Mapping[str, Any]]] = {}
    for row in session.execute(statement).all():
        if row.sequence <= running[row.task_id]:
            events.setdefault(row.task_id, []).append(row.event)
    return made | {task_id: fold(of_task) for task_id, of_task in events.items()}


def _stored(row: Row[Any]) -> tuple[Artifact, ...]:
    return tuple(Artifact.model_validate(artifact) for artifact in row.artifacts)
