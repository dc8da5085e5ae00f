"""The part of a worker that answers agents' turns, and the handlers of agents' jobs: hints, a sweep, schedules."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from celery import Celery, bootsteps
from celery.signals import worker_shutting_down

from shared.a2a.behaviors.registry import build_behaviors
from shared.a2a.execution import TurnExecution
from shared.a2a.jobs import AnswerTurn, PurgeTasks, SweepTurns
from shared.a2a.lost_turns import TurnSweeper
from shared.a2a.own_extensions import OwnExtensions
from shared.a2a.push_configurations import PushConfigurations
from shared.a2a.retention import purge_tasks
from shared.a2a.schedules.jobs import RunDueSchedules
from shared.a2a.schedules.running import Scheduler, run_due_schedules
from shared.a2a.task_log import TaskLog
from shared.a2a.turn_leases import TurnLeases
from shared.a2a.turn_queue import TakenTurn, TurnQueue
from shared.a2a.turn_rows import mark_next_turns
from shared.a2a.turn_watch import TurnWatch
from shared.a2a.watching import TaskHints
from shared.egress.policy import EgressPolicy
from shared.identity.encryption import Encryption
from shared.jobs import AGENTS
from shared.valkey import connect_valkey
from workers.handling import Depot, bind, bind_each, bind_sweep, met
from workers.takers import Takers

DRAIN_SECONDS = 15.0
"""How long turns may go on when the worker is asked to stop; its own patience is a little longer."""
LEASE_CONNECTIONS = 3
"""One looks for turns, one renews their leases, and one takes lost ones back, whatever the turns themselves hold."""


class Turns:
    """The turns of a worker process, at most `limit` at once, and what they are answered with."""

    def __init__(self, depot: Depot, *, limit: int) -> None:
        """Make it in the process that answers turns."""
        self._depot = depot
        database = depot.open_database(pool_size=LEASE_CONNECTIONS)
        self._leases = TurnLeases(database)
        self._hints = TaskHints(connect_valkey(depot.settings.redis_url))
        self._watch = TurnWatch(self._leases, turn_seconds=depot.settings.a2a_turn_seconds)
        self._queue = TurnQueue(self._leases, slots=limit)
        self._sweeper = TurnSweeper(database, self._hints)
        self._takers = Takers(self._take, self._answer, limit=limit, name="turn")
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to take turns."""
        self._sweeper.start()
        self._takers.start()

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
        self._takers.stop()
        self._sweeper.stop()

    @cached_property
    def _execution(self) -> TurnExecution:
        depot = self._depot
        valkey = connect_valkey(depot.settings.redis_url)
        behaviors = build_behaviors(depot.database, depot.store, valkey, depot.settings)
        return TurnExecution(TaskLog(depot.database, self._hints), self._watch, behaviors.by_kind)

    def _take(self) -> TakenTurn | None:
        with self._lock:
            self._execution  # noqa: B018 (a catalog that cannot be read must keep turns waiting, not fail them)
        return self._queue.take()

    def _answer(self, taken: TakenTurn) -> None:
        try:
            with met(AnswerTurn.kind):
                self._execution.answer(taken.lease)
        finally:
            self._queue.release(taken)


class Schedules:
    """What schedules are run with; made with the first job, in the process that does it."""

    def __init__(self, depot: Depot) -> None:
        """Share the settings and the database of the process."""
        self._depot = depot
        self._lock = threading.Lock()

    @cached_property
    def _scheduler(self) -> Scheduler:
        settings = self._depot.settings
        pushes = PushConfigurations(encryption=Encryption(settings), policy=EgressPolicy.of(settings))
        return Scheduler(
            database=self._depot.database, own_extensions=OwnExtensions(settings.base_url), pushes=pushes
        )

    def run(self) -> int:
        """Run what is due; give how many."""
        with self._lock:
            scheduler = self._scheduler
        return run_due_schedules(scheduler)


def bind_agents(app: Celery, depot: Depot) -> None:
    """Bind agents' jobs, and have the worker of their queue answer turns from its start until it is asked to stop."""

    class TurnsStep(bootsteps.StartStopStep):
        """The part of the worker that does, between its pool and its consumer."""

        requires = ("celery.worker.components:Pool",)
        turns: Turns | None = None

        def include_if(self, worker: Any) -> bool:
            return AGENTS in worker.app.amqp.queues.consume_from

        def start(self, worker: Any) -> None:
            TurnsStep.turns = Turns(depot, limit=worker.concurrency)
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
    bind(app, SweepTurns, lambda: mark_next_turns(depot.database))
    bind_sweep(app, PurgeTasks, lambda: _purge(depot))
    bind_sweep(app, RunDueSchedules, Schedules(depot).run)


def _purge(depot: Depot) -> int:
    settings = depot.settings
    return purge_tasks(
        depot.database, task_days=settings.task_retention_days, key_days=settings.operation_retention_days
    )
