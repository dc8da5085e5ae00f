"""Cancel agents' tasks whose turns have ended with us: cancelled, too long, revoked, or given up.

The worker that runs a turn does so at once; a sweep does it for the turns of workers that died, and again where the
agent could not be asked. A message that may have been received, and is in none of the agent's tasks yet, is looked for
again for some minutes. What the agent answers changes nothing: our task has its state.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import text, update

from shared.a2a.remote.bindings import Refused
from shared.a2a.remote.connecting import AgentConnector
from shared.a2a.remote.connection import AgentConnection
from shared.a2a.remote.endpoints import find_endpoint
from shared.a2a.remote.looking import find_received, message_id_of
from shared.a2a.remote.turn_rows import context_id_of
from shared.a2a.remote.turn_tables import remote_turns
from shared.database import Database
from shared.errors import DomainError
from shared.jobs import Context, sweep
from shared.queues import AGENTS
from shared.sweeping import is_over
from shared.telemetry import get_logger

log = get_logger(__name__)

CANCEL_SECONDS = 5.0
SWEEP_SECONDS = 10.0
SWEEP_LIMIT = 500
LOOKED_FOR_SECONDS = 180
"""After a turn's end: an agent may list the task of a message only once it has begun to work."""
ASKED_SECONDS = 3600
"""After a turn's end: how long an agent that cannot be asked is asked again."""


class RemoteCancellation:
    """Cancels agents' tasks from this process."""

    def __init__(self, database: Database, connector: AgentConnector) -> None:
        self._database = database
        self._connector = connector

    def cancel_turn(self, turn_id: UUID) -> None:
        """Cancel the agent's task of a turn, if the turn was cancelled; otherwise do nothing."""
        self._close(self._read(turn_id))

    def sweep(self) -> int:
        """Do so for all turns that have ended; give how many."""
        rows = self._read(None)
        self._close(rows)
        return len(rows)

    def _read(self, turn_id: UUID | None) -> Sequence[Any]:
        with self._database.autocommit() as session:
            values = {"looked_for": LOOKED_FOR_SECONDS, "asked": ASKED_SECONDS}
            return session.execute(_ENDED, {"turn_id": turn_id, "limit": SWEEP_LIMIT, **values}).all()

    def _close(self, rows: Sequence[Any]) -> None:
        done = [row.turn_id for row in rows if not row.is_unwanted or self._cancel(row) or row.is_old]
        if done:
            statement = update(remote_turns).where(remote_turns.c.turn_id.in_(done)).values(is_open=False)
            with self._database.transaction() as session:
                session.execute(statement)

    def _cancel(self, row: Any) -> bool:
        """Ask the agent; tell whether nothing is left to be done."""
        if is_over():
            return False
        with self._database.autocommit() as session:
            endpoint = find_endpoint(session, row.deployment_id)
        if endpoint is None or endpoint.binding is None:
            return True
        connection = self._connector.connect(endpoint)
        try:
            task_id = row.remote_task_id or _find(connection, row)
            if task_id is None:
                return not row.is_looked_for
            connection.ask(connection.binding.cancel(task_id), seconds=CANCEL_SECONDS)
        except Refused as refused:
            return not (refused.is_busy or refused.is_broken)
        except DomainError as error:
            log.info("remote.not_cancelled", error=error.code)
            return False
        return True


@sweep("agents.cancel_remote_tasks", queue=AGENTS, every_seconds=SWEEP_SECONDS)
def _cancel_remote_tasks(context: Context) -> int:
    return context.once(_make_cancellation).sweep()


def _make_cancellation(context: Context) -> RemoteCancellation:
    return RemoteCancellation(context.database, AgentConnector(context.database, context.settings))


def _find(connection: AgentConnection, row: Any) -> str | None:
    found = find_received(
        connection,
        message_id_of(row.turn_id),
        context_id=row.earlier_context_id or context_id_of(row),
        earlier_task_id=row.earlier_task_id,
        seconds=CANCEL_SECONDS,
    )
    return found.id if found is not None else None


# An agent that does not answer keeps nobody else's waiting, because it is not always the first. A turn that was
# cancelled or has failed has ended its task, at `status_at`.
_ENDED = text(
    """
SELECT sent.turn_id, sent.remote_task_id, tasks.deployment_id, tasks.caller_id, tasks.principal_id, tasks.context_id,
    earlier.remote_task_id AS earlier_task_id, earlier.remote_context_id AS earlier_context_id,
    turn.outcome IN ('canceled', 'failed') AND sent.sent_at IS NOT NULL AS is_unwanted,
    tasks.status_at > now() - make_interval(secs => :looked_for) AS is_looked_for,
    tasks.status_at < now() - make_interval(secs => :asked) AS is_old
FROM remote_turns sent JOIN task_turns turn ON turn.id = sent.turn_id JOIN tasks ON tasks.id = sent.task_id
LEFT JOIN LATERAL (
    SELECT remote_task_id, remote_context_id FROM remote_turns
    WHERE task_id = sent.task_id AND turn_id <> sent.turn_id AND remote_task_id IS NOT NULL
    ORDER BY created_at DESC LIMIT 1
) earlier ON true
WHERE sent.is_open AND turn.state = 'done'
    AND (CAST(:turn_id AS uuid) IS NULL OR sent.turn_id = CAST(:turn_id AS uuid))
ORDER BY random() LIMIT :limit
"""
)
