"""The rows of turns that were sent to remote agents: when the message was sent, and the agent's task.

Each statement checks the turn's lease. A worker that has lost the lease gets `TurnGone` and sends nothing. If a row has
`sent_at` but no agent's task, the agent may have received the message. One statement opens a turn: it reads the row,
the endpoint and the state of our log, and marks a new turn as sent.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID, uuid5

from shared.a2a.exact_json import parse
from shared.a2a.remote.endpoints import ENDPOINT_COLUMNS, Endpoint, endpoint_of
from shared.a2a.remote.reconciliation import Logged
from shared.a2a.tasks.artifacts import fold, read_artifact_events
from shared.a2a.types import MessageRole, TaskState
from shared.a2a.updates import Turn
from shared.db.database import Database, Session
from shared.db.statements import Prepared
from shared.runtime.retry import retry

_CONTEXTS = UUID("1c7b6a52-7d5e-4f0a-9d53-0f6f6e3b8a11")
# Limits the messages that are read of a long task. Messages of the agent beyond this limit may be written twice.
MAXIMUM_MESSAGES = 1000


class TurnGone(Exception):
    """Another worker has the turn, or the turn has ended. Stop and send nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SentTurn:
    """The state of a turn when a worker opens it.

    `endpoint` is the endpoint of the turn's deployment, or None. `was_sent` means that an earlier worker may have sent
    the message. `is_marked` means that the current worker has just marked the message as sent. `earlier_task_id` is the
    agent's task that this turn continues. `context_id` is the context at the agent. `quiet_seconds` is the time since
    the agent's last progress.
    """

    endpoint: Endpoint | None
    was_sent: bool
    is_marked: bool
    remote_task_id: str | None
    earlier_task_id: str | None
    context_id: str
    quiet_seconds: float
    logged: Logged


class SentTurns:
    """The rows of sent turns. Each statement is safe to repeat, and is repeated if the database is unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def open(self, turn: Turn) -> SentTurn:
        """Return the state of a turn. If the turn is new and its endpoint is known, mark the turn as sent.

        Raises TurnGone, ServiceUnavailable.
        """
        return retry(partial(self._open, turn))

    def _open(self, turn: Turn) -> SentTurn:
        with self._database.autocommit() as session:
            row = session.fetch_one(_OPEN, _key(turn))
            if row is None:
                raise TurnGone
            return SentTurn(
                endpoint=endpoint_of(row) if row.url is not None else None,
                was_sent=row.was_sent,
                is_marked=row.is_marked,
                remote_task_id=row.remote_task_id,
                earlier_task_id=row.earlier_task_id,
                context_id=row.earlier_context_id or context_id_of(row),
                quiet_seconds=max(0.0, row.quiet_seconds or 0.0),
                logged=_read_log(session, turn, row),
            )

    def mark_sent(self, turn: Turn) -> None:
        """Store that the message is about to be sent. Raises TurnGone, ServiceUnavailable."""
        self._write(turn, _MARK_SENT)

    def mark_unsent(self, turn: Turn) -> None:
        """Store that the message was not sent, or not accepted. Raises TurnGone, ServiceUnavailable."""
        self._write(turn, _MARK_UNSENT)

    def bind(self, turn: Turn, remote_task_id: str, remote_context_id: str | None) -> None:
        """Store which of the agent's tasks belongs to the turn. Call this before an update of that task is written.

        Raises TurnGone, ServiceUnavailable.
        """
        self._write(turn, _BIND, remote_task_id=remote_task_id, remote_context_id=remote_context_id)

    def _write(self, turn: Turn, statement: Prepared, **values: Any) -> None:
        values |= _key(turn)

        def write() -> bool:
            with self._database.autocommit() as session:
                return session.fetch_one(statement, values) is not None

        if not retry(write):
            raise TurnGone


def context_id_of(row: Any) -> str:
    """Return the context id for the agent. It is derived from the caller too: two callers may choose the same id."""
    # The id is derived and not stored: each worker computes the same id.
    scope = f"{row.deployment_id}/{row.caller_id}/{row.principal_id}/{row.context_id}"
    return str(uuid5(_CONTEXTS, scope))


def _key(turn: Turn) -> dict[str, Any]:
    return {"turn_id": turn.id, "lease_id": turn.lease_id}


def _read_log(session: Session, turn: Turn, row: Any) -> Logged:
    state = TaskState(row.state)
    # A new task has no events, so skip the two statements that read them.
    if not row.last_sequence:
        return Logged(state=state)
    message_ids = tuple(_messages(session, turn))
    return Logged(
        state=state,
        artifacts=fold(read_artifact_events(session, turn.task_id)),
        message_ids=message_ids,
        has_questions=row.earlier_task_id is not None,
    )


def _messages(session: Session, turn: Turn) -> Iterator[str]:
    values = {"task_id": turn.task_id, "limit": MAXIMUM_MESSAGES}
    for row in session.fetch_all(_MESSAGES, values):
        message = parse(row.message)
        if message.get("role") == MessageRole.AGENT.value:
            yield message["messageId"]


_MESSAGES = """
SELECT message FROM task_messages WHERE task_id = %(task_id)s ORDER BY number DESC LIMIT %(limit)s
"""
_LOCKED = """
SELECT id, task_id FROM task_turns WHERE id = %(turn_id)s AND lease_id = %(lease_id)s FOR SHARE
"""
# All parts of the statement see the database before the insert, so `mine` is the row of an earlier worker.
_OPEN = Prepared(
    f"""
WITH held AS MATERIALIZED ({_LOCKED}), marked AS (
    INSERT INTO remote_turns (turn_id, task_id, sent_at) SELECT held.id, held.task_id, clock_timestamp()
    FROM held JOIN tasks ON tasks.id = held.task_id
    JOIN deployment_endpoints endpoint ON endpoint.deployment_id = tasks.deployment_id
    WHERE endpoint.binding IS NOT NULL
    ON CONFLICT (turn_id) DO NOTHING RETURNING turn_id
)
SELECT tasks.deployment_id, tasks.caller_id, tasks.principal_id, tasks.context_id, tasks.state, tasks.last_sequence,
    {", ".join(f"endpoint.{name}" for name in ENDPOINT_COLUMNS if name != "deployment_id")},
    mine.sent_at IS NOT NULL AS was_sent, EXISTS (SELECT FROM marked) AS is_marked,
    mine.remote_task_id, earlier.remote_task_id AS earlier_task_id,
    earlier.remote_context_id AS earlier_context_id, (
        SELECT CAST(extract(epoch FROM clock_timestamp() - greatest(mine.sent_at, max(events.created_at))) AS float8)
        FROM task_events events WHERE events.task_id = tasks.id AND mine.sent_at IS NOT NULL
    ) AS quiet_seconds
FROM held JOIN tasks ON tasks.id = held.task_id
LEFT JOIN deployment_endpoints endpoint ON endpoint.deployment_id = tasks.deployment_id
LEFT JOIN remote_turns mine ON mine.turn_id = held.id
LEFT JOIN LATERAL (
    SELECT remote_task_id, remote_context_id FROM remote_turns
    WHERE task_id = tasks.id AND turn_id <> held.id AND remote_task_id IS NOT NULL ORDER BY created_at DESC LIMIT 1
) earlier ON true
"""  # noqa: S608 (constants of this module)
)
_MARK_SENT = Prepared(
    f"""
WITH held AS ({_LOCKED})
INSERT INTO remote_turns (turn_id, task_id, sent_at) SELECT id, task_id, clock_timestamp() FROM held
ON CONFLICT (turn_id) DO UPDATE SET sent_at = excluded.sent_at RETURNING turn_id
"""  # noqa: S608 (constants of this module)
)
_MARK_UNSENT = Prepared(
    f"""
WITH held AS ({_LOCKED})
UPDATE remote_turns SET sent_at = NULL FROM held WHERE turn_id = held.id RETURNING turn_id
"""  # noqa: S608 (constants of this module)
)
_BIND = Prepared(
    f"""
WITH held AS ({_LOCKED})
UPDATE remote_turns SET remote_task_id = %(remote_task_id)s, remote_context_id = %(remote_context_id)s
FROM held WHERE turn_id = held.id RETURNING turn_id
"""  # noqa: S608 (constants of this module)
)
