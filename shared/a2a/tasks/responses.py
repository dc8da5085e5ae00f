"""Wait for an agent's response: for the complete response, or for each event when it is written.

If the caller waits for the watch's wake-up, it holds no connection, transaction or thread between two reads. A client
that reconnects to any web process gets the same events in the same order.
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

# Limits the memory of a stream that reads a long log.
EVENTS_PER_READ = 200
MAX_OUTAGE_SECONDS = 30.0
"""How long a stream continues while the database is unavailable."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """An event of a stream: its number in the task's log, its kind, and its JSON text."""

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
        """The task's state after this event, if the event changes it."""
        if self.kind != "status":
            return None
        return TaskState(self.body["statusUpdate"]["status"]["state"])

    @property
    def is_interruption(self) -> bool:
        """Whether the task waits for its client after this event."""
        state = self.state
        return state is not None and state.is_interrupted

    @property
    def is_last(self) -> bool:
        """Whether no event follows."""
        state = self.state
        return self.kind == "message" or (state is not None and state.is_terminal)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnResponse:
    """The response to a turn's message, and the number of the last event in the task's log."""

    body: SendMessageResponse
    sequence: int


def require_valid_response(session: Session, turn_id: UUID) -> None:
    """Raise InvalidAgentResponse if the turn's agent produced no response."""
    row = session.fetch_one(_TURN, {"turn_id": turn_id})
    if row is not None and row.is_invalid:
        raise InvalidAgentResponse


def find_response(session: Session, turn_id: UUID, *, history_length: int | None) -> TurnResponse | None:
    """Return the response to a turn's message, or None while the turn is not done. Raises InvalidAgentResponse."""
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
    """Wait until the turn is done, and return its response. Yield None after each wait without a change.

    If `is_over()` is true before the turn is done, return None. Pass `reads_first` if the turn may be done already. A
    wait takes at most `wait_seconds()`. Raises InvalidAgentResponse.
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
    """Yield the watched task's events after `after_sequence`, without end. Yield None after a wait without an event.

    Pass `reads_first` if such events may have been written before the watch began, because the watch does not report
    these events. A wait takes at most `wait_seconds()`. Raises ServiceUnavailable if the database stays unavailable
    for `MAX_OUTAGE_SECONDS`.
    """
    sequence, read_at = after_sequence, time.monotonic()
    if not reads_first and not watch.wait(wait_seconds()):
        yield None
    while True:
        try:
            events = _read(database, watch.task_id, sequence)
            read_at = time.monotonic()
        except ServiceUnavailable:
            # Keep the stream open during a failover of the database: if the stream ended, its client would only
            # reconnect and wait for the same events.
            if time.monotonic() - read_at > MAX_OUTAGE_SECONDS:
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
# Messages are read only when the turn is done, so waiting stays cheap.
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
