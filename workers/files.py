"""Handlers of the file domain's jobs; each drains what it finds and does nothing when there is nothing."""

from __future__ import annotations

from datetime import timedelta

from celery import Celery

from shared.credits.amounts import parse_credits
from shared.files import jobs
from shared.files.collection import collect_doomed
from shared.files.expiry import expire_due
from shared.files.placement import place_staged
from shared.files.scrubbing import scrub
from shared.files.storage_charges import accrue_storage
from shared.files.storage_proof import prove_storage
from shared.files.sweeps import purge_grants, purge_operations, sweep_staging
from workers.handling import Depot, bind, bind_sweep


def bind_files(app: Celery, depot: Depot) -> None:
    """Bind the file domain's jobs."""

    def purge_records() -> int:
        retention = timedelta(days=depot.settings.operation_retention_days)
        return purge_operations(depot.database, retention) + purge_grants(depot.database)

    def scrub_content() -> int:
        settings = depot.settings
        if settings.scrub_interval_days == 0 or depot.store.verifies_itself:
            return 0
        interval = timedelta(days=settings.scrub_interval_days)
        return scrub(depot.database, depot.store, interval, budget_bytes=settings.scrub_bytes_per_minute)

    def accrue() -> int:
        settings = depot.settings
        grace = timedelta(days=settings.storage_grace_days)
        return accrue_storage(depot.database, price=parse_credits(settings.storage_price), grace=grace)

    bind_sweep(app, jobs.AccrueStorage, accrue)
    bind_sweep(app, jobs.ProveStorage, lambda: prove_storage(depot.database))
    bind(app, jobs.PlaceStaged, lambda: place_staged(depot.database, depot.store))
    bind_sweep(app, jobs.CollectDoomed, lambda: collect_doomed(depot.database, depot.store))
    bind_sweep(app, jobs.ExpireDue, lambda: expire_due(depot.database, depot.store))
    bind_sweep(app, jobs.SweepStaging, lambda: sweep_staging(depot.database, depot.store))
    bind_sweep(app, jobs.ScrubContent, scrub_content)
    bind_sweep(app, jobs.PurgeRecords, purge_records)
