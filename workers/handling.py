"""Bind handlers to jobs, and record the outcome of jobs in one place.

A failed handler is not retried here: a row in Postgres still records the work, and the handler finds the row at the
next scheduled message. So messages are always acknowledged, and no job is lost or repeated without bound.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import Any, TypeVar

from celery import Celery
from prometheus_client import Counter, Histogram

from shared.config.settings import Settings
from shared.db.database import Database
from shared.errors import DomainError
from shared.files.blobs.base import BlobStore
from shared.files.stores import open_configured_store
from shared.messaging.jobs import Handler
from shared.messaging.publisher import Publisher, create_celery, send_kind
from shared.observability.multiprocess_metrics import LatestGauge
from shared.observability.spans import HEADER
from shared.observability.telemetry import (
    JOB_SECONDS,
    JOB_SUCCEEDED_AT,
    JOBS,
    bind_log_context,
    get_logger,
    reset_log_context,
)
from shared.observability.tracing import continued, trace_id
from shared.runtime.batches import budget

log = get_logger(__name__)
Part = TypeVar("Part")


class WorkerContext:
    """The dependencies of handlers. A process opens each dependency on first use."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.threads = 1
        self._parts: dict[Callable[[WorkerContext], Any], Any] = {}
        # Reentrant, because one dependency may be built from another.
        self._lock = threading.RLock()
        self._when_stopping: list[Callable[[], object]] = []
        self._wakes: dict[str, Callable[[], object]] = {}

    @cached_property
    def _publisher(self) -> Publisher:
        return Publisher(create_celery(self.settings.broker))

    @cached_property
    def database(self) -> Database:
        """The database. Its sessions also publish the jobs that handlers enqueue."""
        return self.open_database(pool_size=self.settings.database_pool_size)

    def open_database(self, *, pool_size: int) -> Database:
        """Return the database over a connection pool of its own, which handlers cannot exhaust."""
        return Database.of(self.settings, pool_size=pool_size, publish=self._publisher.publish)

    @cached_property
    def store(self) -> BlobStore:
        """The blob store."""
        return open_configured_store(self.settings, self.database)

    def once(self, make: Callable[[WorkerContext], Part]) -> Part:
        """Return the result of `make(context)`, computed once per process."""
        with self._lock:
            if make not in self._parts:
                self._parts[make] = make(self)
            part: Part = self._parts[make]
            return part

    def when_stopping(self, act: Callable[[], object]) -> None:
        """Register a function to call when the process is asked to end."""
        self._when_stopping.append(act)

    def stop(self) -> None:
        """Call all functions registered for the process's end."""
        for act in self._when_stopping:
            act()

    def add_consumers(self, queue: str, wake: Callable[[], object]) -> None:
        """Register the function that wakes a queue's consumers when a message arrives."""
        self._wakes[queue] = wake

    def wake(self, queue: str) -> None:
        """Wake the consumers of a queue, if this process has any."""
        if queue in self._wakes:
            self._wakes[queue]()


def bind(app: Celery, handler: Handler, context: WorkerContext) -> None:
    """Register a handler with Celery for all jobs of the handler's kind, and enforce the handler's time limit.

    Unless jobs of this kind may run in parallel, a job that arrives during another one ends without work. If that
    happened, or if the handler ran out of time, a new message for the job is sent to the end of the queue.
    """
    gate = SingleFlight()
    # Create each series with the value zero: an alert on an increase misses the first event of a new series.
    for outcome in ("done", "deferred", "failed"):
        _counter(handler.kind, outcome)

    def handle(task: Any, /, **_: object) -> None:
        if not handler.in_parallel and not gate.enter():
            return
        must_repeat = False
        try:
            traceparent = task.request.get(HEADER)
            with record_job(handler.kind, traceparent), budget(handler.budget_seconds) as time_budget:
                done = handler.run(context)
                must_repeat = time_budget.is_truncated
                if done:
                    log.info("job.done", count=done)
        finally:
            # End the run even after a failure, otherwise no job of this kind would run in this process again.
            must_repeat |= not handler.in_parallel and gate.end()
            if must_repeat:
                _send_again(app, handler)

    app.task(name=handler.kind, bind=True, ignore_result=True, shared=False)(handle)


class SingleFlight:
    """Admits one thread at a time, and records whether another thread was refused in that time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_under_way = self._is_requested_again = False

    def enter(self) -> bool:
        """Return whether the caller was admitted."""
        with self._lock:
            has_entered = not self._is_under_way
            self._is_requested_again |= not has_entered
            self._is_under_way = True
        return has_entered

    def end(self) -> bool:
        """Allow the next thread to enter. Return whether another thread was refused since the last `enter`.

        If one was refused, the caller must repeat the work: the new request may concern rows already passed.
        """
        with self._lock:
            is_requested_again, self._is_requested_again = self._is_requested_again, False
            self._is_under_way = False
        return is_requested_again


def _send_again(app: Celery, handler: Handler) -> None:
    try:
        send_kind(app, handler.kind, queue=handler.queue)
    except Exception as error:  # noqa: BLE001 (after any error of the broker's client, the schedule sends the next)
        log.warning("job.not_continued", kind=handler.kind, error=str(error))


@contextlib.contextmanager
def record_job(kind: str, traceparent: str | None = None) -> Iterator[None]:
    """Record the outcome of a block as a job: count, trace and log it, and suppress its exception.

    `traceparent` is the trace of the request that sent the job.
    """
    token = bind_log_context(job=kind, **({"trace_id": trace_id(traceparent)} if traceparent else {}))
    started = time.perf_counter()
    try:
        with continued(kind, traceparent, quartermaster__job=kind):
            yield
    except DomainError as error:
        _counter(kind, "deferred").inc()
        log.warning("job.deferred", error=error.code)
    except Exception:
        _counter(kind, "failed").inc()
        log.exception("job.failed")
    else:
        _counter(kind, "done").inc()
        _succeeded_at(kind).set(time.time())
    finally:
        _histogram(kind).observe(time.perf_counter() - started)
        reset_log_context(token)


@cache
def _counter(kind: str, outcome: str) -> Counter:
    """Return a counter of `JOBS`. Cached, because `labels` takes longer than `inc`."""
    return JOBS.labels(kind, outcome)


@cache
def _succeeded_at(kind: str) -> LatestGauge:
    return JOB_SUCCEEDED_AT.labels(kind)


@cache
def _histogram(kind: str) -> Histogram:
    return JOB_SECONDS.labels(kind)
