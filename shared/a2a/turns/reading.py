"""Put a turn together from its rows, at the moment a worker takes it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import Row, and_, func, or_, select

from shared.a2a.agents.callers import OnBehalf, make_agent_caller
from shared.a2a.agents.directory import Scope, find_behavior
from shared.a2a.errors import UnsupportedOperation
from shared.a2a.identifiers import find_task_id
from shared.a2a.tables import task_messages, tasks
from shared.a2a.tasks.artifacts import fold_artifacts
from shared.a2a.tasks.events import HeldTask
from shared.a2a.tasks.snapshots import find_snapshot, in_scope
from shared.a2a.turns.updates import Turn
from shared.a2a.types import Artifact, Message, Role, Task
from shared.database import Session

HISTORY_LIMIT = 200
HISTORY_BYTES = 16 << 20
REFERENCES_LIMIT = 20


def read_turn(session: Session, row: Row[Any], task: HeldTask) -> Turn:
    """Read what a behavior is given. Raises AgentUnavailable, and UnsupportedOperation without its behavior."""
    scope = Scope(caller_id=task.caller_id, principal_id=task.principal_id, deployment_id=task.deployment_id)
    behavior = find_behavior(session, row.behavior_id)
    if behavior is None:
        raise UnsupportedOperation("The behavior that was to answer has been removed.")
    message = _message(session, row)
    on_behalf = OnBehalf(
        owner_id=row.owner_id,
        payer_id=row.payer_id,
        distribution_id=row.distribution_id,
        transaction_id=row.transaction_id,
        reported_caller=row.reported_caller,
    )
    caller, attribution = make_agent_caller(
        session, task.deployment_id, on_behalf, message_id=message.message_id
    )
    return Turn(
        id=row.id,
        task_id=task.id,
        context_id=task.context_id,
        message=message,
        history=_history(session, scope, task, row),
        references=tuple(_references(session, scope, message)),
        request_metadata=row.request.get("metadata", {}),
        accepted_output_modes=tuple(row.request.get("acceptedOutputModes", ())),
        active_extensions=frozenset(row.active_extensions),
        organization_id=task.organization_id,
        deployment_id=task.deployment_id,
        behavior=behavior,
        caller=caller,
        attribution=attribution,
        attempt=row.attempts,
    )


def _message(session: Session, row: Row[Any]) -> Message:
    statement = select(task_messages.c.message).where(
        task_messages.c.task_id == row.task_id, task_messages.c.number == row.message
    )
    return Message.model_validate(session.execute(statement).scalar_one())


def _history(session: Session, scope: Scope, task: HeldTask, turn: Row[Any]) -> tuple[Message, ...]:
    """Read what was said in this context before a turn: its tasks one after the other, each in its own order."""
    own_past = and_(tasks.c.id == task.id, task_messages.c.number < turn.message)
    newest_first = (tasks.c.created_at.desc(), tasks.c.id.desc(), task_messages.c.number.desc())
    so_far = func.sum(func.octet_length(task_messages.c.message)).over(order_by=newest_first)
    said = (
        select(tasks.c.id, task_messages.c.message, so_far.label("so_far"))
        .join(task_messages, task_messages.c.task_id == tasks.c.id)
        .where(
            *in_scope(scope),
            tasks.c.context_id == task.context_id,
            or_(own_past, tasks.c.created_at < task.created_at),
        )
        .order_by(*newest_first)
        .limit(HISTORY_LIMIT)
        .subquery()
    )
    statement = select(said.c.id, said.c.message).where(said.c.so_far <= HISTORY_BYTES)
    rows = list(reversed(session.execute(statement.order_by(said.c.so_far)).all()))
    ended = select(tasks.c.id, tasks.c.artifacts).where(tasks.c.id.in_({row.id for row in rows}))
    made = {row.id: _read_artifacts(row.artifacts) for row in session.execute(ended).all()}
    made[task.id] = fold_artifacts(session, task.id) if task.last_sequence else ()
    return tuple(_with_artifacts(rows, made, task))


def _with_artifacts(
    rows: Sequence[Row[Any]], made: Mapping[UUID, Sequence[Artifact]], task: HeldTask
) -> Iterator[Message]:
    for index, row in enumerate(rows):
        yield Message.model_validate(row.message)
        is_last_of_task = index + 1 == len(rows) or rows[index + 1].id != row.id
        parts = tuple(part for artifact in made[row.id] for part in artifact.parts if part.text)
        if is_last_of_task and parts:
            yield Message(
                message_id=f"{row.id}-artifacts", role=Role.AGENT, parts=parts, context_id=task.context_id
            )


def _read_artifacts(stored: Sequence[Any] | None) -> tuple[Artifact, ...]:
    return tuple(Artifact.model_validate(artifact) for artifact in stored or ())


def _references(session: Session, scope: Scope, message: Message) -> Iterator[Task]:
    for reference in message.reference_task_ids[:REFERENCES_LIMIT]:
        task_id = find_task_id(reference)
        snapshot = find_snapshot(session, scope, task_id) if task_id is not None else None
        if snapshot is not None:
            yield snapshot.task
