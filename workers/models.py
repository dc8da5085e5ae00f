"""Carry out model calls in the worker that serves the queue `models`: a part of it that takes them from their list."""

from __future__ import annotations

import threading
from functools import cached_property, partial
from typing import Any

from celery import Celery, bootsteps
from celery.signals import worker_shutting_down

from shared.jobs import MODELS
from shared.models.attendance import Attendance
from shared.models.catalog_file import CatalogFile
from shared.models.execution import Executor, execute
from shared.models.providers.concurrency import ModelSlots
from shared.models.providers.routing import Router
from shared.models.waiting_calls import CallQueue
from shared.replies import ReplyAddress, find_cancelled
from shared.valkey import connect_valkey
from workers.handling import Depot, met
from workers.takers import Takers

KIND = "models.invoke"
DRAIN_SECONDS = 20.0
PATIENCE_SECONDS = 2.0


class ModelCalls:
    """The calls of a worker process, and what they are carried out with."""

    def __init__(self, depot: Depot) -> None:
        """Share the settings and the database of the process."""
        self._depot = depot
        self._takers: Takers[ReplyAddress] | None = None

    @cached_property
    def executor(self) -> Executor:
        """The executor, made in the process that carries calls out."""
        settings = self._depot.settings
        valkey = connect_valkey(settings.redis_url)
        return Executor(
            database=self._depot.database,
            valkey=valkey,
            queue=CallQueue(valkey),
            catalog=CatalogFile(settings.models_config),
            router=Router(),
            slots=ModelSlots(valkey),
            attendance=Attendance(self._depot.database, partial(find_cancelled, valkey)),
        )

    def start(self, limit: int) -> None:
        """Take calls and carry out so many at once at the most."""
        take = partial(self.executor.queue.take, patience_seconds=PATIENCE_SECONDS)
        self._takers = Takers(take, self.carry_out, limit=limit, name="model-call")
        self._takers.start()

    def carry_out(self, address: ReplyAddress) -> None:
        """Carry out one call, and meet whatever happens."""
        with met(KIND):
            execute(self.executor, address)

    def stop(self) -> None:
        """Take no more, and wait for those under way."""
        if self._takers is not None:
            self._takers.stop()

    def drain(self) -> None:
        """Let the calls under way end for a while, then cancel them."""
        if self._takers is not None:
            timer = threading.Timer(DRAIN_SECONDS, self.executor.attendance.cancel_all)
            timer.daemon = True
            timer.start()


def bind_models(app: Celery, depot: Depot) -> None:
    """Have the worker of the queue `models` take model calls from its start until it is asked to stop."""
    calls = ModelCalls(depot)

    class ModelCallsStep(bootsteps.StartStopStep):
        """The part of the worker that does, between its pool and its consumer."""

        requires = ("celery.worker.components:Pool",)

        def include_if(self, worker: Any) -> bool:
            return MODELS in worker.app.amqp.queues.consume_from

        def start(self, worker: Any) -> None:
            calls.start(worker.concurrency)

        def stop(self, worker: Any) -> None:  # noqa: ARG002 (Celery's signature)
            calls.stop()

    def drain(**_: Any) -> None:
        calls.drain()

    app.steps["worker"].add(ModelCallsStep)
    worker_shutting_down.connect(drain, weak=False)
