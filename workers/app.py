"""The Celery application of every worker and of beat. The command line selects a worker's queues."""

import threading
from typing import Any

from celery.signals import beat_init, celeryd_after_setup, worker_init, worker_shutting_down

from shared import failpoints
from shared.config.settings import load_settings
from shared.db.role_limits import refuse_missing_limits
from shared.files.stores import refuse_wrong_store
from shared.messaging.publisher import create_celery
from shared.observability.multiprocess_metrics import HostMetrics
from shared.observability.tracing import start_tracing
from shared.operations.health_checks import Check
from shared.runtime.gc_tuning import freeze_loaded_objects, pause_while_loading
from shared.runtime.log_writer import configure_logging
from workers.handling import WorkerContext
from workers.node import Node, kind_of
from workers.operations_port import answer_operators
from workers.registry import CONTENT_QUEUES, bind_queues

settings = load_settings()
configure_logging(settings.log_level)
failpoints.arm(settings.faults)

app = create_celery(settings.broker)
# Celery's `Worker` is a cached property without a setter.
app.__dict__["Worker"] = app.subclass_with_self(Node, name="Worker")
app.conf.worker_consumer = "workers.node:LeanConsumer"
app.conf.worker_send_task_events = app.conf.task_send_sent_event = settings.task_events
context = WorkerContext(settings)
_is_stopping = threading.Event()


def _check_broker() -> None:
    with app.connection_for_read() as connection:
        connection.ensure_connection(max_retries=0)


@worker_init.connect(weak=False)
def _bind(sender: Any, **_: Any) -> None:
    """Bind the handlers of this worker's queues. Celery sends this signal after it has parsed the queues' names."""
    # Check this first: a worker with a database role without statement limits must not start.
    refuse_missing_limits(settings, context.database)
    queues = sender.app.amqp.queues.consume_from
    checks: dict[str, Check] = {"database": context.database.check, "broker": _check_broker}
    # Only workers that handle content need, and check, the blob store.
    if not CONTENT_QUEUES.isdisjoint(queues):
        refuse_wrong_store(context.store)
        checks["blobs"] = context.store.check
    # Pause garbage collection during imports: a collection would scan objects that are never freed.
    pause_while_loading()
    bind_queues(app, context, queues)
    role = f"worker-{kind_of(sender.hostname)}"
    start_tracing(role)
    metrics = HostMetrics(settings.metrics_directory, role)
    metrics.start()
    answer_operators(checks, metrics, is_draining=_is_stopping.is_set)
    # Freeze the objects before the worker connects: the broker may not respond for days.
    freeze_loaded_objects()


@celeryd_after_setup.connect(weak=False)
def _count_threads(instance: Any, **_: Any) -> None:
    context.threads = int(instance.concurrency)


@worker_shutting_down.connect(weak=False)
def _stop(**_: Any) -> None:
    _is_stopping.set()
    context.stop()


@beat_init.connect(weak=False)
def _count_beat(**_: Any) -> None:
    metrics = HostMetrics(settings.metrics_directory, "beat")
    metrics.start()
    answer_operators({"broker": _check_broker}, metrics)
