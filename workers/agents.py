"""The consumer of agent runs in a worker: takes runs from the queue, executes these runs, and sweeps lost runs."""

import threading
from functools import cached_property

from celery import Celery

from shared.a2a.agent_turns.execution import TurnExecution
from shared.a2a.agent_turns.heartbeats import TurnHeartbeats
from shared.a2a.agent_turns.lost_turns import TurnSweeper
from shared.a2a.agent_turns.queue import TakenTurn, TurnQueue
from shared.a2a.agent_turns.task_log import TaskLog
from shared.a2a.agent_turns.turn_listener import TurnListener
from shared.a2a.behavior_registry import build_behaviors
from shared.a2a.file_links import FileLinks
from shared.a2a.tasks.task_notifier import TaskNotifier
from shared.a2a.turn_state.leases import TurnLeases
from shared.a2a.turn_state.rows import AnswerTurn
from shared.messaging.queues import AGENTS
from shared.messaging.valkey import connect_valkey
from workers.consumers import ConsumerPool, add_step
from workers.handling import WorkerContext, record_job
from workers.settlement_drain import drain_settlements

DRAIN_SECONDS = 15.0
"""How long runs may continue after the worker was asked to stop; slightly less than Celery's soft shutdown timeout."""
LEASE_CONNECTIONS = 4
"""The connections for polling, renewing leases, checking runs under way and sweeping lost runs.

These connections are apart from the main pool, because agent runs may use all connections of the main pool.
"""


class TurnConsumer:
    """Takes and executes agent runs in a worker process, at most `limit` at once."""

    def __init__(self, context: WorkerContext, *, limit: int) -> None:
        self._context = context
        database = context.open_database(pool_size=LEASE_CONNECTIONS)
        self._leases = TurnLeases(database)
        self._notifier = TaskNotifier(connect_valkey(context.settings.redis_url))
        self._watch = TurnHeartbeats(self._leases, turn_seconds=context.settings.a2a_turn_seconds)
        self._queue = TurnQueue(self._leases, slots=limit)
        self._listener = TurnListener(connect_valkey(context.settings.redis_url), self._queue.announce)
        self._sweeper = TurnSweeper(database, self._notifier)
        self._pool = ConsumerPool(self._take, self._answer, limit=limit, name="turn")
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start to take runs."""
        self._sweeper.start()
        self._listener.start()
        self._pool.start()

    def wake(self) -> None:
        """Make the waiting threads poll the queue now."""
        self._queue.wake()

    def drain(self) -> None:
        """Return the runs that are still under way after `DRAIN_SECONDS` to the queue."""
        timer = threading.Timer(DRAIN_SECONDS, self._watch.shut_down)
        # A daemon thread does not delay the end of a process without runs.
        timer.daemon = True
        timer.start()

    def stop(self) -> None:
        """Stop taking runs, and wait for the runs under way."""
        self._listener.stop()
        self._pool.stop()
        self._sweeper.stop()

    @cached_property
    def _execution(self) -> TurnExecution:
        context = self._context
        valkey = connect_valkey(context.settings.redis_url)
        behaviors = build_behaviors(context.database, context.store, valkey, context.settings)
        drain_settlements(context, behaviors.calls.engine.settlements)
        task_log = TaskLog(context.database, self._notifier, FileLinks(context.database, context.settings))
        return TurnExecution(task_log, self._watch, behaviors.by_kind)

    def _take(self) -> TakenTurn | None:
        with self._lock:
            # Build the dependencies before a run is taken; under a lock, because many threads call this at once.
            self._execution  # noqa: B018 (a catalog that cannot be read must keep turns waiting, not fail them)
        return self._queue.take()

    def _answer(self, taken: TakenTurn) -> None:
        try:
            with record_job(AnswerTurn.kind, self._listener.take_trace(taken.lease.turn_id)):
                self._execution.answer(taken.lease)
        finally:
            # Release the slot even after an unexpected error, otherwise this process could never use it again.
            self._queue.release(taken)


def add_consumers(app: Celery, context: WorkerContext) -> None:
    """Run the consumer of agent runs in workers that serve the queue `agents`."""

    def make(limit: int) -> TurnConsumer:
        consumer = TurnConsumer(context, limit=limit)
        context.add_consumers(AGENTS, consumer.wake)
        return consumer

    add_step(app, context, AGENTS, make)
