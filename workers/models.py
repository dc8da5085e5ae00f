"""The handler of model calls: one message, one call."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import worker_shutting_down

from shared.models.attendance import Attendance
from shared.models.catalog_file import CatalogFile
from shared.models.execution import Executor, execute
from shared.models.jobs import Invoke
from shared.models.providers.concurrency import ModelSlots
from shared.models.providers.routing import Router
from shared.valkey import connect_valkey
from workers.handling import Depot, bind_each

DRAIN_SECONDS = 20.0


class ModelDepot:
    """What calls are carried out with; made with the first, in the process that carries it out."""

    def __init__(self, depot: Depot) -> None:
        """Share the settings and the database of the process."""
        self._depot = depot

    @cached_property
    def executor(self) -> Executor:
        """The executor of this process."""
        settings = self._depot.settings
        valkey = connect_valkey(settings.redis_url)
        return Executor(
            database=self._depot.database,
            valkey=valkey,
            catalog=CatalogFile(settings.models_config),
            router=Router(),
            slots=ModelSlots(valkey),
            attendance=Attendance(self._depot.database),
        )


def bind_models(app: Celery, depot: Depot) -> None:
    """Bind model calls, and end those under way in time when the worker is asked to stop."""
    models = ModelDepot(depot)
    lock = threading.Lock()

    def handle(job: Invoke) -> None:
        with lock:
            executor = models.executor
        execute(executor, job)

    def drain(**_: Any) -> None:
        if "executor" in models.__dict__:
            timer = threading.Timer(DRAIN_SECONDS, models.executor.attendance.cancel_all)
            timer.daemon = True
            timer.start()

    bind_each(app, Invoke, handle)
    worker_shutting_down.connect(drain, weak=False)
