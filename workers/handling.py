"""Bind handlers to jobs: one place where a job's failure is recorded.

A handler that fails is not retried from here: its row still says that there is work, and the schedule's next look
finds it. So a message is acknowledged whatever became of it, and nothing is lost or repeated without bound.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, cached_property
from typing import TypeVar

from celery import Celery
from prometheus_client import Counter, Histogram

from shared.database import Database
from shared.errors import DomainError
from shared.files.blobs.base import BlobStore
from shared.files.stores import open_configured_store
from shared.jobs import Job, Publisher, create_celery, send
from shared.settings import Settings
from shared.sweeping import budget
from shared.telemetry import JOB_SECONDS, JOBS, bind_log_context, get_logger, reset_log_context

log = get_logger(__name__)
JobType = TypeVar("JobType", bound=Job)


class WorkerContext:
    """What handlers work with; each part is opened on first use, in the process that uses it."""

    def __init__(self, settings: Settings) -> None:
        """Remember the settings."""
        self.settings = settings

    @cached_property
    def _publisher(self) -> Publisher:
        return Publisher(create_celery(self.settings.redis_url))

    @cached_property
    def database(self) -> Database:
        """The database, publishing the jobs that handlers enqueue."""
        return self.open_database(pool_size=self.settings.database_pool_size)

    def open_database(self, *, pool_size: int) -> Database:
        """Open the database over connections that handlers cannot use up."""
        return Database(self.settings.database_url, pool_size=pool_size, publish=self._publisher.publish)

    @cached_property
    def store(self) -> BlobStore:
        """The blob store."""
        return open_configured_store(self.settings, self.database)


def bind(app: Celery, job: type[Job], handler: Callable[[], int]) -> None:
    """Let `handler` do every job of this kind; it returns how much it found to do."""

    def handle(**_: object) -> None:
        with recorded(job.kind):
            done = handler()
            if done:
                log.info("job.done", count=done)

    app.task(name=job.kind, ignore_result=True, shared=False)(handle)


def bind_sweep(app: Celery, job: type[Job], handler: Callable[[], int]) -> None:
    """Let `handler` sweep for every job of this kind: in one thread of the process, and within a budget of time.

    A copy that comes meanwhile ends at once. A sweep that was cut short, or asked for again while it ran, is sent for
    behind whatever else waits in the queue; if that message is lost, the schedule sends the next.
    """
    one = OneAtATime()

    def handle(**_: object) -> None:
        if not one.begin():
            return
        goes_on = False
        try:
            with recorded(job.kind), budget() as given:
                done = handler()
                goes_on = given.is_cut_short
                if done:
                    log.info("job.done", count=done)
        finally:
            goes_on |= one.end()
            if goes_on:
                _send_again(app, job)

    app.task(name=job.kind, ignore_result=True, shared=False)(handle)


class OneAtATime:
    """Lets one thread in, and remembers whether others came meanwhile."""

    def __init__(self) -> None:
        """Let the first in."""
        self._lock = threading.Lock()
        self._is_under_way = self._is_asked_again = False

    def begin(self) -> bool:
        """Tell whether the caller is in."""
        with self._lock:
            is_in = not self._is_under_way
            self._is_asked_again |= not is_in
            self._is_under_way = True
        return is_in

    def end(self) -> bool:
        """Let the next in; tell whether somebody came meanwhile, who may have seen what the sweep had passed."""
        with self._lock:
            is_asked_again, self._is_asked_again = self._is_asked_again, False
            self._is_under_way = False
        return is_asked_again


def _send_again(app: Celery, job: type[Job]) -> None:
    try:
        send(app, job())
    except Exception as error:  # noqa: BLE001 (whatever the broker's client raises, the schedule sends the next)
        log.warning("job.not_continued", kind=job.kind, error=str(error))


def bind_each(app: Celery, job: type[JobType], handler: Callable[[JobType], None]) -> None:
    """Let `handler` do each job of a kind whose messages name their work."""

    def handle(**fields: str) -> None:
        with recorded(job.kind):
            handler(job(**fields))

    app.task(name=job.kind, ignore_result=True, shared=False)(handle)


@contextlib.contextmanager
def recorded(kind: str) -> Iterator[None]:
    """Meet whatever happens within: count it, log it, and let the message be acknowledged."""
    token = bind_log_context(job=kind)
    started = time.perf_counter()
    try:
        yield
    except DomainError as error:
        _counter(kind, "deferred").inc()
        log.warning("job.deferred", error=error.code)
    except Exception:
        _counter(kind, "failed").inc()
        log.exception("job.failed")
    else:
        _counter(kind, "done").inc()
    finally:
        _histogram(kind).observe(time.perf_counter() - started)
        reset_log_context(token)


@cache
def _counter(kind: str, outcome: str) -> Counter:
    """Find the series once: looking it up costs more than counting."""
    return JOBS.labels(kind, outcome)


@cache
def _histogram(kind: str) -> Histogram:
    return JOB_SECONDS.labels(kind)
