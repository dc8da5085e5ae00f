"""The Celery application of every worker and of beat; which queues a worker serves is its command line's choice."""

from typing import Any

from celery.signals import beat_init, celeryd_after_setup, worker_init, worker_ready, worker_shutting_down

from shared import failpoints
from shared.files.stores import refuse_wrong_store
from shared.gc_tuning import freeze_loaded_objects
from shared.log_lines import configure_logging
from shared.metrics import HostMetrics
from shared.publisher import create_celery
from shared.settings import load_settings
from workers.handling import WorkerContext
from workers.registry import CONTENT_QUEUES, bind_queues

settings = load_settings()
configure_logging(settings.log_level)
failpoints.arm(settings.faults)

app = create_celery(settings.redis_url)
context = WorkerContext(settings)


@worker_init.connect(weak=False)
def _bind(sender: Any, **_: Any) -> None:
    """Bind handlers once this worker's queues are known, before it starts."""
    queues = sender.app.amqp.queues.consume_from
    if not CONTENT_QUEUES.isdisjoint(queues):
        refuse_wrong_store(context.store)
    bind_queues(app, context, queues)
    HostMetrics(settings.metrics_directory, f"worker-{sender.hostname.partition('@')[0]}").start()


@celeryd_after_setup.connect(weak=False)
def _count_threads(instance: Any, **_: Any) -> None:
    context.threads = int(instance.concurrency)


@worker_shutting_down.connect(weak=False)
def _stop(**_: Any) -> None:
    context.stop()


@beat_init.connect(weak=False)
def _count_beat(**_: Any) -> None:
    HostMetrics(settings.metrics_directory, "beat").start()


@worker_ready.connect(weak=False)
def _settle_in(**_: Any) -> None:
    freeze_loaded_objects()
