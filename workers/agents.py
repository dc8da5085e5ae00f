"""The handlers of agents' jobs: one message, one turn; the sweep of turns without a message; schedules that are due."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any
from uuid import UUID

from celery import Celery
from celery.signals import worker_shutting_down

from shared.a2a.behaviors.registry import build_behaviors
from shared.a2a.execution import TurnExecution
from shared.a2a.jobs import AnswerTurn, PurgeTasks, SweepTurns
from shared.a2a.own_extensions import OwnExtensions
from shared.a2a.push_configurations import PushConfigurations
from shared.a2a.retention import purge_tasks
from shared.a2a.schedules.jobs import RunDueSchedules
from shared.a2a.schedules.running import Scheduler, run_due_schedules
from shared.a2a.task_log import TaskLog
from shared.a2a.turn_watch import TurnWatch
from shared.a2a.watching import TaskHints
from shared.egress.policy import EgressPolicy
from shared.identity.encryption import Encryption
from shared.valkey import connect_valkey
from workers.handling import Depot, bind, bind_each

DRAIN_SECONDS = 15.0
"""How long turns may go on when the worker is asked to stop; its own patience is a little longer."""


class AgentDepot:
    """What turns are answered with; made with the first, in the process that answers it."""

    def __init__(self, depot: Depot) -> None:
        """Share the settings, the database and the store of the process."""
        self._depot = depot

    @cached_property
    def log(self) -> TaskLog:
        """The log of all tasks."""
        return TaskLog(self._depot.database, TaskHints(connect_valkey(self._depot.settings.redis_url)))

    @cached_property
    def watch(self) -> TurnWatch:
        """The watch over this process's turns."""
        return TurnWatch(self.log, turn_seconds=self._depot.settings.a2a_turn_seconds)

    @cached_property
    def scheduler(self) -> Scheduler:
        """What schedules are run with in this process."""
        settings = self._depot.settings
        pushes = PushConfigurations(encryption=Encryption(settings), policy=EgressPolicy.of(settings))
        return Scheduler(
            database=self._depot.database, own_extensions=OwnExtensions(settings.base_url), pushes=pushes
        )

    @cached_property
    def execution(self) -> TurnExecution:
        """Who answers turns in this process."""
        settings = self._depot.settings
        behaviors = build_behaviors(
            self._depot.database, self._depot.store, connect_valkey(settings.redis_url), settings
        )
        return TurnExecution(self.log, self.watch, behaviors.by_kind)


def bind_agents(app: Celery, depot: Depot) -> None:
    """Bind agents' jobs, and end the turns under way in time when the worker is asked to stop."""
    agents = AgentDepot(depot)
    lock = threading.Lock()

    def answer(job: AnswerTurn) -> None:
        with lock:
            execution = agents.execution
        execution.answer(UUID(job.turn_id))

    def sweep() -> int:
        with lock:
            log = agents.log
        return log.sweep()

    def run_schedules() -> int:
        with lock:
            scheduler = agents.scheduler
        return run_due_schedules(scheduler)

    def drain(**_: Any) -> None:
        if "watch" in agents.__dict__:
            timer = threading.Timer(DRAIN_SECONDS, agents.watch.shut_down)
            timer.daemon = True
            timer.start()

    bind_each(app, AnswerTurn, answer)
    bind(app, SweepTurns, sweep)
    bind(app, PurgeTasks, lambda: _purge(depot))
    bind(app, RunDueSchedules, run_schedules)
    worker_shutting_down.connect(drain, weak=False)


def _purge(depot: Depot) -> int:
    settings = depot.settings
    return purge_tasks(
        depot.database, task_days=settings.task_retention_days, key_days=settings.operation_retention_days
    )
