"""Snapshots of tasks for their readers, built from rows.

The task's row is read first. This row has the numbers of the last event and the last message of the snapshot; later
events and messages are left out. So a snapshot and the events after its `sequence` neither overlap nor leave a gap, and
no lock is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Integer, Row, Uuid, and_, cast, func, select

from shared.a2a.agents.directory import DeploymentScope, Readable, Scope
from shared.a2a.exact_json import parse
from shared.a2a.tables import task_events, task_messages, tasks
from shared.a2a.tasks.artifacts import fold, read_artifact_events
from shared.a2a.tasks.events import TaskKey
from shared.a2a.types import Artifact, Message, Task, TaskState, TaskStatus
from shared.db.database import Session

# The maximum history length, and the default if the client sets none.
MAXIMUM_HISTORY = 1000
HISTORY_BYTES = 32 << 20
"""The size limit for the messages of one response. It is larger than the longest message that is accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A task, with the number of the last event that it includes.

    `has_events` is False if retention has deleted the task's events.
    """

    task: Task
    sequence: int
    has_events: bool = True


def find_snapshot(
    session: Session, scope: Readable, task_id: UUID, *, history_length: int | None = None
) -> Snapshot | None:
    """Return the snapshot of a task in a scope.

    Returns None for tasks of other scopes, for unknown ids, and for tasks that are not visible to their client.
    """
    values = values_of(history_length) | {"task_id": task_id, "deployment_id": scope.deployment_id}
    if isinstance(scope, Scope):
        own = {"caller_id": scope.caller_id, "principal_id": scope.principal_id}
        row = session.fetch_one(_FIND_OWN, values | own)
    else:
        row = session.fetch_one(_FIND, values)
    return snapshot_of(session, row, history_length) if row is not None else None


def read_snapshot(session: Session, task_id: UUID, *, history_length: int | None) -> Snapshot:
    """Return the snapshot of a task. The caller must know that the task exists, and must have checked the access."""
    row = session.fetch_one(_READ, values_of(history_length) | {"task_id": task_id})
    return snapshot_of(session, row, history_length)


def new_snapshot(task: TaskKey, message: Message, *, at: datetime, history_length: int | None) -> Snapshot:
    """Return the snapshot of a new task with its first message, without reading any row."""
    status = TaskStatus(state=TaskState.SUBMITTED, timestamp=at)
    # A history length of 0 means no messages at all (protocol definition 3.2.4).
    history = () if history_length == 0 else (message,)
    new_task = Task(id=str(task.id), context_id=task.context_id, status=status, history=history)
    return Snapshot(task=new_task, sequence=0)


def snapshots_of(
    session: Session, rows: Sequence[Row[Any]], *, history_length: int, with_artifacts: bool
) -> tuple[Task, ...]:
    """Return the tasks of several rows. The number of statements does not depend on the number of rows."""
    messages_by_number = _read_messages(session, rows, history_length)
    artifacts = _artifacts_of(session, rows) if with_artifacts else {}
    return tuple(
        _task(row, messages_by_number.get(row.id, {}), artifacts.get(row.id, ()), history_length)
        for row in rows
    )


def in_scope(scope: Readable) -> tuple[Any, ...]:
    """Return the conditions that restrict a query to the tasks of a scope."""
    if isinstance(scope, DeploymentScope):
        return (tasks.c.deployment_id == scope.deployment_id,)
    return (
        tasks.c.caller_id == scope.caller_id,
        tasks.c.principal_id == scope.principal_id,
        tasks.c.deployment_id == scope.deployment_id,
    )


def snapshot_of(session: Session, row: Any, history_length: int | None) -> Snapshot:
    """Return the snapshot of a task from a row of a `with_messages` query."""
    # The row of an ended task has the artifacts; the artifacts of a running task are folded from its events.
    if row.artifacts is not None:
        artifacts = tuple(Artifact.model_validate(artifact) for artifact in parse(row.artifacts))
    else:
        artifacts = fold(read_artifact_events(session, row.id, up_to_sequence=row.last_sequence))
    task = _task(row, messages_of(row), artifacts, history_length)
    return Snapshot(task=task, sequence=row.last_sequence, has_events=row.has_events)


def messages_of(row: Any) -> Mapping[int, Message]:
    """Return the messages by their numbers, from a row of a `with_messages` query."""
    texts = zip(row.numbers or (), row.messages or (), strict=True)
    return {number: Message.model_validate(parse(text)) for number, text in texts}


def with_messages(condition: str, *, tables: str = "tasks", also: str = "", needed: str = "true") -> str:
    """Return a query of tasks, each with its last `%(length)s` messages and its status message.

    The messages of a task have at most `%(bytes)s` bytes in total. Older messages are left out, but the status message
    is always included. `also` adds columns of `tables`. Messages are read only where `needed` is true.
    """
    return f"""
SELECT {also} tasks.*, said.numbers, said.messages FROM {tables} CROSS JOIN LATERAL (
    SELECT array_agg(number ORDER BY number) AS numbers, array_agg(message ORDER BY number) AS messages FROM (
        SELECT number, message, sum(octet_length(message)) OVER (ORDER BY number DESC) AS so_far
        FROM task_messages WHERE {needed} AND task_id = tasks.id
            AND (number BETWEEN tasks.last_message - %(length)s AND tasks.last_message OR number = tasks.status_message)
    ) sized WHERE so_far <= %(bytes)s OR number = tasks.status_message
) said WHERE {condition}
"""  # noqa: S608 (conditions from the code)


def values_of(history_length: int | None) -> dict[str, Any]:
    """Return the parameters of a `with_messages` query."""
    return {"length": _length(history_length), "bytes": HISTORY_BYTES}


def _length(requested: int | None) -> int:
    return MAXIMUM_HISTORY if requested is None else min(requested, MAXIMUM_HISTORY)


def _read_messages(
    session: Session, rows: Sequence[Row[Any]], history_length: int | None
) -> Mapping[UUID, Mapping[int, Message]]:
    """Return the last messages and the status messages of several tasks, by number.

    The messages of all tasks have at most `HISTORY_BYTES` in total. If there are more, the older messages of the later
    tasks are left out. The sizes are compared before any text is read.
    """
    length = _length(history_length)
    requested = func.unnest(
        cast([row.id for row in rows], ARRAY(Uuid)),
        cast([row.last_message for row in rows], ARRAY(Integer)),
        cast([row.status_message for row in rows], ARRAY(Integer)),
        cast(list(range(len(rows))), ARRAY(Integer)),
    )
    task = requested.table_valued("id", "last", "status", "place", name="asked").render_derived()
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
    messages_by_number: dict[UUID, dict[int, Message]] = {}
    for row in session.execute(statement).all():
        messages_by_number.setdefault(row.task_id, {})[row.number] = Message.model_validate(row.message)
    return messages_by_number


def _task(
    row: Row[Any],
    messages_by_number: Mapping[int, Message],
    artifacts: Sequence[Artifact],
    history_length: int | None,
) -> Task:
    length = _length(history_length)
    history = [
        message
        for number, message in messages_by_number.items()
        # The task's status already contains the status message, so the history leaves it out.
        if number <= row.last_message and number != row.status_message
    ]
    status = TaskStatus(
        state=TaskState(row.state),
        message=messages_by_number.get(row.status_message),
        timestamp=row.status_at,
    )
    return Task(
        id=str(row.id),
        context_id=row.context_id,
        status=status,
        artifacts=tuple(artifacts),
        history=tuple(history[-length:] if length else ()),
    )


def _artifacts_of(session: Session, rows: Sequence[Row[Any]]) -> Mapping[UUID, tuple[Artifact, ...]]:
    artifacts = {row.id: _stored(row) for row in rows if row.artifacts is not None}
    running = {row.id: row.last_sequence for row in rows if row.artifacts is None}
    statement = (
        select(task_events.c.task_id, task_events.c.sequence, task_events.c.event)
        .where(and_(task_events.c.task_id.in_(running), task_events.c.kind == "artifact"))
        .order_by(task_events.c.task_id, task_events.c.sequence)
    )
    events: dict[UUID, list[Mapping[str, Any]]] = {}
    for row in session.execute(statement).all():
        # Skip events that were written after the task's row was read: they do not belong to the snapshot.
        if row.sequence <= running[row.task_id]:
            events.setdefault(row.task_id, []).append(row.event)
    return artifacts | {task_id: fold(of_task) for task_id, of_task in events.items()}


def _stored(row: Row[Any]) -> tuple[Artifact, ...]:
    return tuple(Artifact.model_validate(artifact) for artifact in row.artifacts)


_READ = with_messages("tasks.id = %(task_id)s")
_OF_DEPLOYMENT = "tasks.id = %(task_id)s AND tasks.deployment_id = %(deployment_id)s AND tasks.is_visible"
_FIND = with_messages(_OF_DEPLOYMENT)
_FIND_OWN = with_messages(
    f"{_OF_DEPLOYMENT} AND tasks.caller_id = %(caller_id)s AND tasks.principal_id = %(principal_id)s"
)
