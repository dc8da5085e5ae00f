"""The part of a worker that answers agents' turns, and the handlers of agents' jobs: hints, a sweep, schedules."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from celery import Celery, bootsteps
from celery.signals import worker_shutting_down

from shared.a2a.agents.own_extensions import OwnExtensions
from shared.a2a.behaviors.registry import build_behaviors
from shared.a2a.jobs import AnswerTurn, PurgeTasks, SweepTurns
from shared.a2a.push.configurations import PushConfigurations
from shared.a2a.schedules.jobs import RunDueSchedules
from shared.a2a.schedules.running import Scheduler, run_due_schedules
from shared.a2a.tasks.log import TaskLog
from shared.a2a.tasks.retention import purge_tasks
from shared.a2a.tasks.watching import TaskHints
from shared.a2a.turns.execution import TurnExecution
from shared.a2a.turns.heartbeats import TurnHeartbeats
from shared.a2a.turns.leases import TurnLeases
from shared.a2a.turns.lost_turns import TurnSweeper
from shared.a2a.turns.queue import TakenTurn, TurnQueue
from shared.a2a.turns.rows import mark_next_turns
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.jobs import AGENTS
from shared.valkey import connect_valkey
from workers.consumer_pool import ConsumerPool
from workers.handling import WorkerContext, bind, bind_each, bind_sweep, recorded

DRAIN_SECONDS = 15.0
"""How long turns may go on when the worker is asked to stop; its own patience is a little longer."""
LEASE_CONNECTIONS = 3
"""One looks for turns, one renews their leases, and one takes lost ones back, whatever the turns themselves hold."""


class Turns:
    """The turns of a worker process, at most `limit` at once, and what they are answered with."""

    def __init__(self, context: WorkerContext, *, limit: int) -> None:
        """Make it in the process that answers turns."""
        self._context = context
        database = context.open_database(pool_size=LEASE_CONNECTIONS)
        self._leases = TurnLeases(database)
        self._hints = TaskHints(connect_valkey(context.settings.redis_url))
        self._watch = TurnHeartbeats(self._leases, turn_seconds=context.settings.a2a_turn_seconds)
        self._queue = TurnQueue(self._leases, slots=limit)
        self._sweeper = TurnSweeper(database, self._hints)
        self._pool = ConsumerPool(self._take, self._answer, limit=limit, name="turn")
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to take turns."""
        self._sweeper.start()
        self._pool.start()

    def wake(self) -> None:
        """Look for a turn now."""
        self._queue.wake()

    def drain(self) -> None:
        """Let the turns under way end for a while, then hand them back."""
        timer = threading.Timer(DRAIN_SECONDS, self._watch.shut_down)
        timer.daemon = True
        timer.start()

    def stop(self) -> None:
        """Take no more, and wait for those under way."""
        self._pool.stop()
        self._sweeper.stop()

    @cached_property
    def _execution(self) -> TurnExecution:
        context = self._context
        valkey = connect_valkey(context.settings.redis_url)
        behaviors = build_behaviors(context.database, context.store, valkey, context.settings)
        return TurnExecution(TaskLog(context.database, self._hints), self._watch, behaviors.by_kind)

    def _take(self) -> TakenTurn | None:
        with self._lock:
            self._execution  # noqa: B018 (a catalog that cannot be read must keep turns waiting, not fail them)
        return self._queue.take()

    def _answer(self, taken: TakenTurn) -> None:
        try:
            with recorded(AnswerTurn.kind):
                self._execution.answer(taken.lease)
        finally:
            self._queue.release(taken)


class Schedules:
    """What schedules are run with; made with the first job, in the process that does it."""

    def __init__(self, context: WorkerContext) -> None:
        """Share the settings and the database of the process."""
        self._context = context
        self._lock = threading.Lock()

    @cached_property
    def _scheduler(self) -> Scheduler:
        settings = self._context.settings
        pushes = PushConfigurations(encryption=Encryption(settings), policy=EgressPolicy.of(settings))
        return Scheduler(
            database=self._context.database, own_extensions=OwnExtensions(settings.base_url), pushes=pushes
        )

    def run(self) -> int:
        """Run what is due; give how many."""
        with self._lock:
            scheduler = self._scheduler
        return run_due_schedules(scheduler)


def bind_agents(app: Celery, context: WorkerContext) -> None:
    """Bind agents' jobs, and have the worker of their queue answer turns from its start until it is asked to stop."""

    class TurnsStep(bootsteps.StartStopStep):
        """The part of the worker that does, between its pool and its consumer."""

        requires = ("celery.worker.components:Pool",)
        turns: Turns | None = None

        def include_if(self, worker: Any) -> bool:
            return AGENTS in worker.app.amqp.queues.consume_from

        def start(self, worker: Any) -> None:
            TurnsStep.turns = Turns(context, limit=worker.concurrency)
            TurnsStep.turns.start()
            worker_shutting_down.connect(self.drain)

        def drain(self, **_: Any) -> None:
            if TurnsStep.turns is not None:
                TurnsStep.turns.drain()

        def stop(self, worker: Any) -> None:  # noqa: ARG002 (Celery's signature)
            if TurnsStep.turns is not None:
                TurnsStep.turns.stop()

    def wake(_: AnswerTurn) -> None:
        if TurnsStep.turns is not None:
            TurnsStep.turns.wake()

    app.steps["worker"].add(TurnsStep)
    bind_each(app, AnswerTurn, wake)
    bind(app, SweepTurns, lambda: mark_next_turns(context.database))
    bind_sweep(app, PurgeTasks, lambda: _purge(context))
    bind_sweep(app, RunDueSchedules, Schedules(context).run)


def _purge(context: WorkerContext) -> int:
    settings = context.settings
    return purge_tasks(
        context.database, task_days=settings.task_retention_days, key_days=settings.operation_retention_days
    )
