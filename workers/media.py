"""Handlers of the media domain's jobs: attachments are fetched by all threads of the worker but a few.

Organizations share these threads (`shared/admission.py`): the slow sources of one leave room for another's. What is
left over serves the other queue of this worker: sources that take their time must not keep distributions and agents'
clients from being told what happened.
"""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import celeryd_after_setup, worker_shutting_down

from shared.admission import Pool
from shared.database import Database
from shared.egress.policy import EgressPolicy
from shared.encryption import Encryption
from shared.identity.webhook_secrets import forget_replaced_secrets
from shared.media import jobs
from shared.media.claims import purge_imports
from shared.media.fetching import Fetcher, fetch_due
from shared.media.network_settings import forget_replaced_settings
from shared.telemetry import SWEPT
from workers.handling import WorkerContext, bind, bind_each, bind_sweep

SPARE_THREADS = 2
"""Threads that never fetch: one for the sender, one for the hints that there is more for it."""


class MediaContext:
    """What imports are carried out with; made with the first, in the process that carries it out."""

    def __init__(self, context: WorkerContext) -> None:
        """Share the settings, the database and the store of the process."""
        self._context = context
        self._lock = threading.Lock()
        self._threads = 1

    def fetch_due(self) -> int:
        """Fetch what is due; leave it to the threads that fetch already where no more may."""
        with self._lock:
            fetcher = self._fetcher
        return fetch_due(fetcher)

    def spare_threads(self, instance: Any, **_: Any) -> None:
        """Learn how many threads the worker has, before it takes its first message."""
        self._threads = max(1, int(instance.concurrency) - SPARE_THREADS)

    def stop(self, **_: Any) -> None:
        """Begin no further import: the worker is asked to end."""
        if "_fetcher" in self.__dict__:
            self._fetcher.is_stopping.set()

    @cached_property
    def _fetcher(self) -> Fetcher:
        settings = self._context.settings
        return Fetcher(
            database=self._context.database,
            store=self._context.store,
            settings=settings,
            encryption=Encryption(settings),
            policy=EgressPolicy.of(settings),
            pool=Pool("fetches", self._threads),
        )


def bind_media(app: Celery, context: WorkerContext) -> None:
    """Bind the media domain's jobs."""
    media = MediaContext(context)

    def fetch(_: jobs.FetchMedia) -> None:
        media.fetch_due()

    bind_each(app, jobs.FetchMedia, fetch)
    bind(app, jobs.FetchDueMedia, media.fetch_due)
    bind_sweep(app, jobs.PurgeImports, lambda: purge_imports(context.database))
    bind_sweep(app, jobs.ForgetReplacedSecrets, lambda: _forget_replaced_secrets(context.database))
    # Not `worker_init`, in which handlers are bound: a receiver connected while a signal is sent does not hear it.
    celeryd_after_setup.connect(media.spare_threads, weak=False)
    worker_shutting_down.connect(media.stop, weak=False)


def _forget_replaced_secrets(database: Database) -> int:
    """Erase those that webhooks were signed with, by us or by a network."""
    forgotten = forget_replaced_secrets(database) + forget_replaced_settings(database)
    SWEPT.labels("replaced_secrets").inc(forgotten)
    return forgotten
