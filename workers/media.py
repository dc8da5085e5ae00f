"""Handlers of the media domain's jobs: attachments are fetched by as many threads as the worker has."""

from __future__ import annotations

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

    @cached_property
    def fetcher(self) -> Fetcher:
        """The fetcher of this process."""
        settings = self._depot.settings
        return Fetcher(
            database=self._depot.database,
            store=self._depot.store,
            settings=settings,
            encryption=Encryption(settings),
            policy=EgressPolicy.of(settings),
        )


def bind_media(app: Celery, depot: Depot) -> None:
    """Bind the media domain's jobs, and begin no further import when the worker is asked to stop."""
    media = MediaDepot(depot)

    def fetch(_: jobs.FetchMedia) -> None:
        fetch_due(media.fetcher)

    def stop(**_: Any) -> None:
        if "fetcher" in media.__dict__:
            media.fetcher.is_stopping.set()

    bind_each(app, jobs.FetchMedia, fetch)
    bind(app, jobs.FetchDueMedia, lambda: fetch_due(media.fetcher))
    bind(app, jobs.PurgeImports, lambda: purge_imports(depot.database))
    worker_shutting_down.connect(stop, weak=False)
