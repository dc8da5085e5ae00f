"""Send the messages of jobs through Celery to the broker that `broker.py` describes.

Publishing never fails a request: a lost message delays its job by at most the interval of its sweep.
"""

import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from kombu import Connection

from shared.messaging.broker import Broker
from shared.messaging.jobs import Job
from shared.messaging.queues import RETENTION
from shared.observability.spans import HEADER
from shared.observability.telemetry import PUBLISH_FAILURES, get_logger
from shared.observability.tracing import traceparent
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

COALESCING_SECONDS = 0.03
PENDING_LIMIT = 10_000
RECONNECT_SECONDS = 2
"""Longest pause between two attempts of a Celery process to reach its broker."""


class BrokerConnection(Connection):
    """kombu's connection, which retries an unreachable broker every RECONNECT_SECONDS.

    By default kombu's pauses grow, so no work would be done for up to half a minute after the broker is available
    again.
    """

    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        """Connect, retrying until it succeeds."""
        return super().ensure_connection(*args, **{"interval_max": RECONNECT_SECONDS} | kwargs)


class _BrokerConnections(AMQP):
    Connection = BrokerConnection


def create_celery(broker_url: str) -> Celery:
    """Return a Celery app for wake-up messages: late acknowledgement, no results, no events, bounded waits.

    Raises ValueError if the broker's URL has an unknown scheme.
    """
    app = Celery("quartermaster", set_as_current=False, amqp=_BrokerConnections)
    app.conf.update(
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_limit=32,
        # Store no results in the broker: results are rows in Postgres.
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        # Acknowledge a message after its job: if the worker dies, another worker gets the message.
        task_acks_late=True,
        # A busy worker must not reserve messages that an idle one could handle.
        worker_prefetch_multiplier=1,
        task_default_queue=RETENTION,
        # A misspelled queue must cause an error instead of collecting messages that no worker reads.
        task_create_missing_queues=False,
        task_publish_retry_policy={
            "max_retries": 1,
            "interval_start": 0,
            "interval_step": 0.1,
            "interval_max": 0.1,
        },
        task_send_sent_event=False,
        worker_send_task_events=False,
        worker_disable_rate_limits=True,
        worker_soft_shutdown_timeout=20,
        worker_enable_soft_shutdown_on_idle=True,
        worker_eta_task_limit=1000,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
    )
    app.conf.update(Broker.of(broker_url).settings)
    return app


class Publisher:
    """Sends jobs' messages from a thread of its own, so that no request waits for the broker.

    The first job is sent at once. Equal jobs within the next 30 ms, or within the spacing of their class, become one
    message. A job is dropped and counted if the broker rejects it or its queue is full.
    """

    def __init__(self, app: Celery) -> None:
        """Create the publisher; its thread starts with the first job."""
        self._app = app
        self._broker = Broker.of(app.conf.broker_address)
        self._cooldown_until = 0.0
        self._pending: dict[Job, str | None] = {}
        """The pending jobs, each with the trace of the first request that enqueued the job."""
        self._spaced_until: dict[type[Job], float] = {}
        self._lock = threading.Lock()
        self._thread = PeriodicThread(
            self._send_pending,
            name="job-publisher",
            pause_seconds=COALESCING_SECONDS,
            has_work=lambda: self._pending,
        )

    def publish(self, jobs: Sequence[Job]) -> None:
        """Queue jobs for sending; returns at once."""
        with self._lock:
            # Bound the queue: while the broker is down, equal jobs are merged but different jobs accumulate.
            if len(self._pending) < PENDING_LIMIT:
                trace = traceparent()
                for job in jobs:
                    self._pending.setdefault(job, trace)
            else:
                PUBLISH_FAILURES.inc(len(jobs))
        self._thread.wake()

    def _send_pending(self) -> None:
        for job, trace in self._take_due().items():
            self._send(job, trace)

    def _take_due(self) -> dict[Job, str | None]:
        now = time.monotonic()
        with self._lock:
            ready = [job for job in self._pending if self._spaced_until.get(type(job), 0.0) <= now]
            due = {job: self._pending.pop(job) for job in ready}
        # Only this thread reads and writes it, so it needs no lock.
        # Only this thread reads and writes it, so it needs no lock.
        self._spaced_until |= {type(job): now + job.spacing_seconds for job in due if job.spacing_seconds}
        return due

    def _send(self, job: Job, trace: str | None = None) -> None:
        if time.monotonic() < self._cooldown_until:
            PUBLISH_FAILURES.inc()
            return
        try:
            if self._broker.is_full(job.queue):
                PUBLISH_FAILURES.inc()
                return
            send(self._app, job, trace)
        except Exception as error:  # noqa: BLE001 (any failure of the client is harmless: the row stays)
            PUBLISH_FAILURES.inc()
            self._cooldown_until = time.monotonic() + self._broker.cooldown_seconds
            log.warning("job.not_published", kind=job.kind, error=str(error))


def send(app: Celery, job: Job, trace: str | None = None) -> None:
    """Send a job's message now, with the trace of its request. Raises as `send_kind` does."""
    fields = {name: str(value) for name, value in dataclasses.asdict(job).items()}
    send_kind(app, job.kind, queue=job.queue, fields=fields, trace=trace)


def send_kind(
    app: Celery, kind: str, *, queue: str, fields: dict[str, Any] | None = None, trace: str | None = None
) -> None:
    """Send a message of this kind now. Raises kombu's OperationalError if the broker does not accept it."""
    headers = {HEADER: trace} if trace is not None else None
    app.send_task(
        kind,
        kwargs=fields,
        queue=queue,
        headers=headers,
        argsrepr="",
        kwargsrepr="",
        ignore_result=True,
    )
