"""Wait for what an agent says: for the whole answer, or for each event as it is written.

Nothing is held between two looks: no connection, no transaction, and no thread where the caller waits for the watch's
wake_up. A client that asks again, from anywhere, is given the same events in the same order.
"""

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from shared.a2a.errors import InvalidAgentResponse
from shared.a2a.exact_json import parse
from shared.a2a.tasks.snapshots import messages_of, snapshot_of, values_of, with_messages
from shared.a2a.tasks.task_notifier import Watch
from shared.a2a.types import SendMessageResponse, TaskState
from shared.db.database import Database, Session
from shared.errors import ServiceUnavailable
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

EVENTS_PER_READ = 200
MAX_OUTAGE_SECONDS = 30.0
"""How long a stream outlasts a database that does not answer."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event as streams send it, in JSON, and its place in its task's order."""

    sequence: int
    kind: str
    text: str

    @cached_property
    def body(self) -> Mapping[str, Any]:
        """The event's JSON object."""
        parsed: Mapping[str, Any] = parse(self.text)
        return parsed

    @cached_property
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
class TurnResponse:
    """What a turn was answered with, the task or the message, and the last event of its task."""

    body: SendMessageResponse
    sequence: int


def require_valid_response(session: Session, turn_id: UUID) -> None:
    """Raise InvalidAgentResponse when a turn's agent has answered nothing at all."""
    row = session.fetch_one(_TURN, {"turn_id": turn_id})
    if row is not None and row.is_invalid:
        raise InvalidAgentResponse


def find_response(session: Session, turn_id: UUID, *, history_length: int | None) -> TurnResponse | None:
    """Read what a turn was answered with; None while it is not done.

    Raises InvalidAgentResponse.
    """
    row = session.fetch_one(_RESPONSE, values_of(history_length) | {"turn_id": turn_id})
    if row is None or not row.is_done:
        return None
    if row.is_invalid:
        raise InvalidAgentResponse
    if row.reply is not None:
        body = SendMessageResponse(message=messages_of(row)[row.reply])
    else:
        body = SendMessageResponse(task=snapshot_of(session, row, history_length).task)
    return TurnResponse(body=body, sequence=row.last_sequence)


def wait_for_response(
    database: Database,
    watch: Watch,
    turn_id: UUID,
    *,
    history_length: int | None,
    is_over: Callable[[], bool],
    wait_seconds: Callable[[], float],
    reads_first: bool,
) -> Generator[None, None, TurnResponse | None]:
    """Yield as long as a turn is not done; return its answer, or None when the time `is_over`.

    It `reads_first` where the turn may be done already. Each None comes after a wait of `wait_seconds()` at the most.
    Raises InvalidAgentResponse.
    """
    while True:
        if reads_first:
            with database.autocommit() as session:
                response = find_response(session, turn_id, history_length=history_length)
            if response is not None or is_over():
                return response
        reads_first = True
        if not watch.wait(wait_seconds()):
            yield None


def follow(
    database: Database,
    watch: Watch,
    after_sequence: int,
    wait_seconds: Callable[[], float],
    *,
    reads_first: bool,
) -> Iterator[Event | None]:
    """Yield the events of the watched task after one, without end; None whenever there is none yet.

    It `reads_first` where there may be such events that came before the watch began, of which it does not tell. Each
    None comes after a wait of `wait_seconds()` at the most. Raises ServiceUnavailable when the database stays away.
    """
    sequence, answered_at = after_sequence, time.monotonic()
    if not reads_first and not watch.wait(wait_seconds()):
        yield None
    while True:
        try:
            events = _read(database, watch.task_id, sequence)
            answered_at = time.monotonic()
        except ServiceUnavailable:
            if time.monotonic() - answered_at > MAX_OUTAGE_SECONDS:
                raise
            events = []
        for event in events:
            sequence = event.sequence
            yield event
        if not events:
            watch.wait(wait_seconds())
            yield None


def _read(database: Database, task_id: UUID, after_sequence: int) -> list[Event]:
    values = {"task_id": task_id, "after": after_sequence, "limit": EVENTS_PER_READ}
    with database.autocommit() as session:
        rows = session.fetch_all(_EVENTS, values)
    return [Event(sequence=row.sequence, kind=row.kind, text=row.event) for row in rows]


_TURN = """
SELECT outcome = 'invalid' AND NOT tasks.is_visible AS is_invalid
FROM task_turns JOIN tasks ON tasks.id = task_turns.task_id WHERE task_turns.id = %(turn_id)s
"""
_RESPONSE = with_messages(
    tables="task_turns turn JOIN tasks ON tasks.id = turn.task_id",
    also="turn.state = 'done' AS is_done, turn.reply, turn.outcome = 'invalid' AND NOT tasks.is_visible AS is_invalid,",
    needed="turn.state = 'done'",
    condition="turn.id = %(turn_id)s",
)
_EVENTS = """
SELECT sequence, kind, event FROM task_events WHERE task_id = %(task_id)s AND sequence > %(after)s
ORDER BY sequence LIMIT %(limit)s
"""
