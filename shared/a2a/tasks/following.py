"""Wait for what an agent says: for the whole answer, or for each event as it is written.

Nothing is held between two looks: no connection, no transaction, and no thread where the caller waits for the watch's
bell instead of here. A client that asks again, from another process or after a crash, is given the same events in the
same order.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import select

from shared.a2a.errors import InvalidAgentResponse
from shared.a2a.tables import task_events, task_messages, task_turns, tasks
from shared.a2a.tasks.watching import Watch
from shared.a2a.turns.rows import TurnOutcome
from shared.a2a.types import Message, TaskState
from shared.database import Database, Session
from shared.errors import Unavailable
from shared.telemetry import get_logger

log = get_logger(__name__)

EVENTS_AT_ONCE = 200
PATIENCE_SECONDS = 30.0
"""How long a stream outlasts a database that does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """An event as streams send it, and its place in its task's order."""

    sequence: int
    kind: str
    body: Mapping[str, Any]

    @property
    def state(self) -> TaskState | None:
        """The state that the task is in from here on, if the event changes it."""
        if self.kind != "status":
            return None
        return TaskState(self.body["statusUpdate"]["status"]["state"])

    @property
    def is_interruption(self) -> bool:
        """Whether the task waits for its client from here on."""
        state = self.state
        return state is not None and state.is_interrupted

    @property
    def is_last(self) -> bool:
        """Whether nothing follows."""
        state = self.state
        return self.kind == "message" or (state is not None and state.is_terminal)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnState:
    """Where a turn is, as a waiting client needs to know."""

    is_done: bool
    is_visible: bool
    reply: int | None
    outcome: TurnOutcome | None


def read_turn_state(session: Session, turn_id: UUID) -> TurnState:
    """Read the state of a turn. Raises InvalidAgentResponse when its agent has answered nothing at all."""
    statement = select(task_turns.c.state, task_turns.c.outcome, task_turns.c.reply, tasks.c.is_visible)
    joined = statement.join(tasks, tasks.c.id == task_turns.c.task_id).where(task_turns.c.id == turn_id)
    row = session.execute(joined).one()
    if row.outcome == TurnOutcome.INVALID and not row.is_visible:
        raise InvalidAgentResponse
    return TurnState(
        is_done=row.state == "done",
        is_visible=row.is_visible,
        reply=row.reply,
        outcome=TurnOutcome(row.outcome) if row.outcome else None,
    )


def read_reply(session: Session, task_id: UUID, number: int) -> Message:
    """Read the message that was the whole answer."""
    statement = select(task_messages.c.message).where(
        task_messages.c.task_id == task_id, task_messages.c.number == number
    )
    return Message.model_validate(session.execute(statement).scalar_one())


def wait_for_turn(
    database: Database, watch: Watch, turn_id: UUID, *, deadline: float, wait_seconds: Callable[[], float]
) -> Iterator[TurnState | None]:
    """Yield None while a turn is not done, and its state when it is, or when the deadline has come.

    Each None comes after a wait of `wait_seconds()` at the most. `deadline` is of `time.monotonic`. Raises
    InvalidAgentResponse.
    """
    while True:
        with database.autocommit() as session:
            state = read_turn_state(session, turn_id)
        left = deadline - time.monotonic()
        if state.is_done or left <= 0:
            yield state
            return
        watch.wait(wait_seconds())
        yield None


def follow(
    database: Database, watch: Watch, after_sequence: int, *, wait_seconds: Callable[[], float]
) -> Iterator[Event | None]:
    """Yield the events of the watched task after one, without end; None after every look that found none.

    Each None comes after a wait of `wait_seconds()` at the most. A database that is away for a moment only delays.
    Raises Unavailable when it stays away.
    """
    sequence, answered_at = after_sequence, time.monotonic()
    while True:
        try:
            events = _read(database, watch.task_id, sequence)
            answered_at = time.monotonic()
        except Unavailable:
            if time.monotonic() - answered_at > PATIENCE_SECONDS:
                raise
            events = []
        for event in events:
            sequence = event.sequence
            yield event
        if not events:
            watch.wait(wait_seconds())
            yield None


def _read(database: Database, task_id: UUID, after_sequence: int) -> list[Event]:
    statement = (
        select(task_events.c.sequence, task_events.c.kind, task_events.c.event)
        .where(task_events.c.task_id == task_id, task_events.c.sequence > after_sequence)
        .order_by(task_events.c.sequence)
        .limit(EVENTS_AT_ONCE)
    )
    with database.autocommit() as session:
        rows = session.execute(statement).all()
    return [Event(sequence=row.sequence, kind=row.kind, body=row.event) for row in rows]
