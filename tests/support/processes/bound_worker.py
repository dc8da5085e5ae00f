"""A worker's handlers, bound to Celery's tasks as in a worker process and called in the test's own thread."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from celery import Celery, _state

from shared.config.settings import Settings
from shared.messaging.publisher import create_celery
from shared.messaging.queues import QUEUES
from workers.handling import WorkerContext
from workers.registry import bind_queues


class BoundWorker:
    """The handlers of some queues, and their shared resources."""

    def __init__(self, app: Celery, context: WorkerContext) -> None:
        self.app = app
        self.context = context

    def run(self, kind: str, **fields: str) -> None:
        """Run a job as if its message had just arrived."""
        assert self.app.tasks[kind].apply(kwargs=fields).get() is None


@contextmanager
def bound_worker(
    settings: Settings, queues: Collection[str] = QUEUES, *, broker_url: str | None = None
) -> Iterator[BoundWorker]:
    """Bind the handlers of these queues."""
    # Celery registers a task with every application of the process; this application must use its own handlers.
    shared_tasks: Any = _state
    others, shared_tasks._on_app_finalizers = shared_tasks._on_app_finalizers, set()
    app, context = create_celery(broker_url or settings.redis_url), WorkerContext(settings)
    bind_queues(app, context, queues)
    try:
        yield BoundWorker(app, context)
    finally:
        context.stop()
        context.database.dispose()
        app.close()
        shared_tasks._on_app_finalizers = others
