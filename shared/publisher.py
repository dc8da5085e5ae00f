"""Send jobs' messages through Celery, which only this module, `broker.py` and `workers` speak to.

Publishing never fails a request: a lost message costs its job no more than the interval of its sweep.
"""

import dataclasses
import threading
import time
from collections.abc import Sequence
from typing import Any

import redis
from celery import Celery
from kombu import Queue

from shared.broker import register_transport
from shared.jobs import Job
from shared.periodic_thread import PeriodicThread
from shared.queues import MODELS, MODELS_ASIDE, QUEUES, RETENTION
from shared.telemetry import PUBLISH_FAILURES, get_logger
from shared.valkey import connect_valkey

log = get_logger(__name__)

KEY_PREFIX = "quartermaster:"

COALESCING_SECONDS = 0.03
PENDING_LIMIT = 10_000
HINTS_LIMIT = 1_000
"""Hints that wait in a queue at the most: while no worker takes them, more would only fill the broker's memory."""

VISIBILITY_TIMEOUT_SECONDS = 3600
CALL_QUEUES = (*MODELS, MODELS_ASIDE)

_TRANSPORT = {
    "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
    "unacked_restore_interval": 5,
    "unacked_restore_throttle": 1,
    # Without these a broker that accepts and does not answer would block a publisher for ever.
    "socket_timeout": 5,
    "socket_connect_timeout": 1,
    "socket_keepalive": True,
    "health_check_interval": 10,
    "priority_steps": [0],
    "global_keyprefix": KEY_PREFIX,
}


def create_celery(redis_url: str) -> Celery:
    """Configure Celery for messages that are hints: late acknowledgement, no results, no events, bounded waits."""
    register_transport()
    app = Celery("quartermaster", set_as_current=False)
    app.conf.update(
        broker_url=redis_url,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_pool_limit=32,
        broker_transport_options=_TRANSPORT,
        result_backend=None,
        task_ignore_result=True,
        task_serializer="json",
        accept_content=["json"],
        task_acks_late=True,
        worker_prefetch_multiplier=1,
        task_default_queue=RETENTION,
        task_queues=[message_queue(name, redis_url) for name in QUEUES],
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
        beat_max_loop_interval=1,
    )
    return app


def message_queue(name: str, broker_url: str) -> Queue:
    """Describe a queue.

    On Valkey a model call's message is not acknowledged, which would cost as much as all else: its front sends a lost
    one again.
    """
    return Queue(name, no_ack=name.startswith(CALL_QUEUES) and broker_url.startswith("redis"))


class Publisher:
    """Sends job messages from a thread of its own, so that no request waits for the broker.

    The first job goes out at once; equal jobs within the next 30 milliseconds, or the spacing of their class, go out
    as one. A job that the broker does not take, or that finds the queue full, is dropped and counted.
    """

    def __init__(self, app: Celery) -> None:
        """Start no thread before the first job."""
        self._app = app
        self._valkey = connect_valkey(app.conf.broker_url)
        self._pending: dict[Job, None] = {}
        self._spaced_until: dict[type[Job], float] = {}
        self._lock = threading.Lock()
        self._thread = PeriodicThread(
            self._send_pending,
            name="job-publisher",
            pause_seconds=COALESCING_SECONDS,
            has_work=lambda: self._pending,
        )

    def publish(self, jobs: Sequence[Job]) -> None:
        """Hand over jobs; returns at once."""
        with self._lock:
            if len(self._pending) < PENDING_LIMIT:
                self._pending.update(dict.fromkeys(jobs))
            else:
                PUBLISH_FAILURES.inc(len(jobs))
        self._thread.wake()

    def _send_pending(self) -> None:
        for job in self._take_due():
            self._send(job)

    def _take_due(self) -> list[Job]:
        now = time.monotonic()
        with self._lock:
            due = [job for job in self._pending if self._spaced_until.get(type(job), 0.0) <= now]
            for job in due:
                del self._pending[job]
        self._spaced_until |= {type(job): now + job.spacing_seconds for job in due if job.spacing_seconds}
        return due

    def _send(self, job: Job) -> None:
        try:
            if queue_length(self._valkey, job.queue) >= HINTS_LIMIT:
                PUBLISH_FAILURES.inc()
                return
            send(self._app, job)
        except Exception as error:  # noqa: BLE001 (whatever the broker's client raises, the row stays)
            PUBLISH_FAILURES.inc()
            log.warning("job.not_published", kind=job.kind, error=str(error))


def send(app: Celery, job: Job) -> None:
    """Send one job's message now; raises kombu's OperationalError when the broker does not take it."""
    fields = {name: str(value) for name, value in dataclasses.asdict(job).items()}
    send_kind(app, job.kind, queue=job.queue, fields=fields)


def send_kind(app: Celery, kind: str, *, queue: str, fields: dict[str, Any] | None = None) -> None:
    """Send a message of this kind now; raises kombu's OperationalError when the broker does not take it."""
    app.send_task(kind, kwargs=fields, queue=queue, argsrepr="", kwargsrepr="", ignore_result=True)


def queue_length(valkey: redis.Redis, queue: str) -> int:
    """Count the messages that wait in a queue of a Valkey or Redis broker. Raises redis.RedisError."""
    length: Any = valkey.llen(KEY_PREFIX + queue)
    return int(length)
