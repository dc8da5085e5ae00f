"""Cancel tasks at remote agents after their turns were canceled here or have failed.

The worker that runs a turn cancels the agent's task at once. A sweep cancels the tasks of workers that died, and
retries if the agent could not be reached. If the agent may have received the message but lists no task with it yet, the
sweep repeats the search for some minutes. The agent's response does not change our task, which has already ended.

A sweep contacts a few agents at the same time, and handles each turn once. Turns are selected round robin among
organizations. Agents that do not respond are skipped for a while, so that they do not delay the other agents. Ended
turns without a task to cancel are closed in batches, by one statement for each batch.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import UUID

from sqlalchemy import text, update

from shared.a2a.endpoint_tables import remote_turns
from shared.a2a.remote.bindings import ErrorResponse
from shared.a2a.remote.connection import AgentConnection, AgentConnector
from shared.a2a.remote.endpoints import find_endpoint
from shared.a2a.remote.task_recovery import find_received, message_id_of
from shared.a2a.remote.turn_rows import context_id_of
from shared.db.database import Database
from shared.egress.errors import EgressError
from shared.errors import DomainError
from shared.fairness.fair_queueing import select_round_robin
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import AGENTS
from shared.observability.telemetry import get_logger
from shared.runtime.batches import drain, run_in_batches

log = get_logger(__name__)

CANCEL_SECONDS = 5.0
SWEEP_SECONDS = 10.0
# The batch is small, because each of its turns may take the whole time limit of a request.
BATCH_SIZE = 8
THREADS = 4
"""The number of agents that one worker process contacts at the same time."""
CLOSED_AT_ONCE = 1000
SEARCH_SECONDS = 180
"""After a turn's end: an agent may list a message's task only once it has begun to work."""
RETRY_SECONDS = 3600
"""After a turn's end: how long an unreachable agent is tried again."""
UNRESPONSIVE_SECONDS = 60.0
"""How long the sweeps of a process skip an agent that did not respond."""


class RemoteCancellation:
    """Cancels tasks at agents from this process. Only one thread at a time may call `sweep`."""

    def __init__(self, database: Database, connector: AgentConnector) -> None:
        self._database = database
        self._connector = connector
        self._unresponsive_until: dict[UUID, float] = {}
        """The deployments whose agents did not respond to a sweep, with the time until which sweeps skip them."""

    def cancel_turn(self, turn_id: UUID) -> None:
        """Cancel the agent's task of a turn if the turn was canceled or has failed. Otherwise do nothing."""
        for row in self._read([turn_id]):
            try:
                is_done = self._ask(row)
            except DomainError as error:
                log.info("remote.not_cancelled", error=error.code)
                continue
            if is_done:
                self._close([turn_id])

    def sweep(self) -> int:
        """Cancel the agents' tasks of all turns that have ended; return how many turns were handled."""
        closed = run_in_batches(self._database, _CLOSE_SETTLED, size=CLOSED_AT_ONCE)
        tried: set[UUID] = set()

        def batch() -> int:
            found = self._find(tried)
            tried.update(found)
            rows = self._read(found)
            with ThreadPoolExecutor(THREADS, thread_name_prefix="cancels") as pool:
                are_done = list(pool.map(self._try, rows))
            self._close([row.turn_id for row, is_done in zip(rows, are_done, strict=True) if is_done])
            return len(found)

        return closed + drain(batch, size=BATCH_SIZE)

    def _find(self, tried: set[UUID]) -> list[UUID]:
        """Return turns that this sweep has not tried, except those of unresponsive agents.

        Turns older than `RETRY_SECONDS` are always included, because they are closed without contacting the agent.
        """
        now = time.monotonic()
        self._unresponsive_until = {
            at: until for at, until in self._unresponsive_until.items() if until > now
        }
        values = {
            "tried": [*map(str, tried)],
            "silent": [*map(str, self._unresponsive_until)],
            "asked": RETRY_SECONDS,
        }
        with self._database.autocommit() as session:
            oldest, fair = _OLDEST.bindparams(**values), _FAIR.bindparams(**values)
            return select_round_robin(session, oldest=oldest, fair=fair, limit=BATCH_SIZE)

    def _read(self, turn_ids: Sequence[UUID]) -> Sequence[Any]:
        if not turn_ids:
            return ()
        values = {
            "turn_ids": [*map(str, turn_ids)],
            "looked_for": SEARCH_SECONDS,
            "asked": RETRY_SECONDS,
        }
        with self._database.autocommit() as session:
            return session.execute(_READ, values).all()

    def _close(self, turn_ids: Sequence[UUID]) -> None:
        if turn_ids:
            statement = update(remote_turns).where(remote_turns.c.turn_id.in_(turn_ids)).values(is_open=False)
            with self._database.transaction() as session:
                session.execute(statement)

    def _try(self, row: Any) -> bool:
        """Contact the agent unless it is unresponsive. Return whether the turn can be closed."""
        if row.deployment_id in self._unresponsive_until:
            return bool(row.is_old)
        try:
            return self._ask(row) or row.is_old
        except EgressError as error:
            self._unresponsive_until[row.deployment_id] = time.monotonic() + UNRESPONSIVE_SECONDS
            log.info("remote.not_cancelled", error=error.code)
        except DomainError as error:
            log.info("remote.not_cancelled", error=error.code)
        return bool(row.is_old)

    def _ask(self, row: Any) -> bool:
        """Cancel the agent's task. Return whether the turn can be closed. Raises DomainError."""
        with self._database.autocommit() as session:
            endpoint = find_endpoint(session, row.deployment_id)
        # The endpoint was deleted or has no address yet, so there is no server at which to cancel: close the turn.
        if endpoint is None or endpoint.binding is None:
            return True
        connection = self._connector.connect(endpoint)
        try:
            task_id = row.remote_task_id or _find_received(connection, row)
            if task_id is None:
                # The agent may list the task later: search again until the time is over.
                return not row.is_looked_for
            connection.ask(connection.binding.cancel(task_id), seconds=CANCEL_SECONDS)
        except ErrorResponse as error:
            return not (error.is_busy or error.is_broken)
        return True


@sweep("agents.cancel_remote_tasks", queue=AGENTS, every_seconds=SWEEP_SECONDS)
def _cancel_remote_tasks(context: Context) -> int:
    return context.once(_make_cancellation).sweep()


def _make_cancellation(context: Context) -> RemoteCancellation:
    return RemoteCancellation(context.database, AgentConnector(context.database, context.settings))


def _find_received(connection: AgentConnection, row: Any) -> str | None:
    found = find_received(
        connection,
        message_id_of(row.turn_id),
        context_id=row.earlier_context_id or context_id_of(row),
        earlier_task_id=row.earlier_task_id,
        seconds=CANCEL_SECONDS,
    )
    return found.id if found is not None else None


_IS_UNWANTED = "(turn.outcome IN ('canceled', 'failed') AND sent.sent_at IS NOT NULL)"
_CLOSE_SETTLED = text(
    f"""
UPDATE remote_turns SET is_open = false WHERE turn_id = ANY (ARRAY(
    SELECT sent.turn_id FROM remote_turns sent JOIN task_turns turn ON turn.id = sent.turn_id
    WHERE sent.is_open AND turn.state = 'done' AND NOT {_IS_UNWANTED}
    ORDER BY sent.created_at LIMIT :limit FOR UPDATE OF sent SKIP LOCKED
))
"""  # noqa: S608 (constants of this module)
)
# A turn that was canceled or failed has ended its task, at `status_at`.
_ENDED = f"""
FROM remote_turns sent JOIN task_turns turn ON turn.id = sent.turn_id JOIN tasks ON tasks.id = sent.task_id
WHERE sent.is_open AND turn.state = 'done' AND {_IS_UNWANTED}
"""
_IS_OLD = "tasks.status_at < now() - make_interval(secs => :asked)"
_DUE = f"""
{_ENDED} AND sent.turn_id <> ALL (CAST(:tried AS uuid[]))
    AND ({_IS_OLD} OR tasks.deployment_id <> ALL (CAST(:silent AS uuid[])))
"""
_OLDEST = text(f"SELECT sent.turn_id {_DUE} ORDER BY sent.created_at LIMIT :limit")
# Selects random turns of each organization, so that one agent does not delay the organization's other agents. Few turns
# are both open and ended, so a random order is cheap.
_FAIR = text(
    f"""
SELECT due.turn_id FROM (
    SELECT sent.turn_id, row_number() OVER (PARTITION BY tasks.organization_id ORDER BY random()) AS place {_DUE}
) due WHERE due.place <= :each ORDER BY due.place, random() LIMIT :limit
"""  # noqa: S608 (constants of this module)
)
_READ = text(
    f"""
SELECT sent.turn_id, sent.remote_task_id, tasks.deployment_id, tasks.caller_id, tasks.principal_id, tasks.context_id,
    earlier.remote_task_id AS earlier_task_id, earlier.remote_context_id AS earlier_context_id,
    tasks.status_at > now() - make_interval(secs => :looked_for) AS is_looked_for, {_IS_OLD} AS is_old
FROM remote_turns sent JOIN task_turns turn ON turn.id = sent.turn_id JOIN tasks ON tasks.id = sent.task_id
LEFT JOIN LATERAL (
    SELECT remote_task_id, remote_context_id FROM remote_turns
    WHERE task_id = sent.task_id AND turn_id <> sent.turn_id AND remote_task_id IS NOT NULL
    ORDER BY created_at DESC LIMIT 1
) earlier ON true
WHERE sent.turn_id = ANY (CAST(:turn_ids AS uuid[])) AND sent.is_open AND turn.state = 'done' AND {_IS_UNWANTED}
"""  # noqa: S608 (constants of this module)
)
