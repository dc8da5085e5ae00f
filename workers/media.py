"""Handlers of the media domain's jobs: attachments are fetched by as many threads as the worker has."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import worker_shutting_down

from shared.egress.policy import EgressPolicy
from shared.identity.encryption import Encryption
from shared.media import jobs
from shared.media.claims import purge_imports
from shared.media.fetching import Fetcher, fetch_due
from workers.handling import Depot, bind, bind_each


class MediaDepot:
    """What imports are carried out with; made with the first, in the process that carries it out."""

    def __init__(self, depot: Depot) -> None:
        """Share the settings, the database and the store of the process."""
        self._depot = depot
        self._lock = threading.Lock()

    def fetch_due(self) -> int:
        """Fetch what is due."""
        with self._lock:
            fetcher = self._fetcher
        return fetch_due(fetcher)

    def stop(self, **_: Any) -> None:
        """Begin no further import: the worker is asked to end."""
        if "_fetcher" in self.__dict__:
            self._fetcher.is_stopping.set()

    @cached_property
    def _fetcher(self) -> Fetcher:
        settings = self._depot.settings
        return Fetcher(
            database=self._depot.database,
            store=self._depot.store,
            settings=settings,
            encryption=Encryption(settings),
            policy=EgressPolicy.of(settings),
        )


def bind_media(app: Celery, depot: Depot) -> None:
    """Bind the media domain's jobs."""
    media = MediaDepot(depot)

    def fetch(_: jobs.FetchMedia) -> None:
        media.fetch_due()

    bind_each(app, jobs.FetchMedia, fetch)
    bind(app, jobs.FetchDueMedia, media.fetch_due)
    bind(app, jobs.PurgeImports, lambda: purge_imports(depot.database))
    worker_shutting_down.connect(media.stop, weak=False)
