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
from workers.handling import WorkerContext, bind, bind_sweep


def bind_files(app: Celery, context: WorkerContext) -> None:
    """Bind the file domain's jobs."""

    def purge_records() -> int:
        retention = timedelta(days=context.settings.operation_retention_days)
        return purge_operations(context.database, retention) + purge_grants(context.database)

    def scrub_content() -> int:
        settings = context.settings
        if settings.scrub_interval_days == 0 or context.store.verifies_itself:
            return 0
        interval = timedelta(days=settings.scrub_interval_days)
        return scrub(context.database, context.store, interval, budget_bytes=settings.scrub_bytes_per_minute)

    def accrue() -> int:
        settings = context.settings
        grace = timedelta(days=settings.storage_grace_days)
        return accrue_storage(context.database, price=parse_credits(settings.storage_price), grace=grace)

    bind_sweep(app, jobs.AccrueStorage, accrue)
    bind_sweep(app, jobs.ProveStorage, lambda: prove_storage(context.database))
    bind(app, jobs.PlaceStaged, lambda: place_staged(context.database, context.store))
    bind_sweep(app, jobs.CollectDoomed, lambda: collect_doomed(context.database, context.store))
    bind_sweep(app, jobs.ExpireDue, lambda: expire_due(context.database, context.store))
    bind_sweep(app, jobs.SweepStaging, lambda: sweep_staging(context.database, context.store))
    bind_sweep(app, jobs.ScrubContent, scrub_content)
    bind_sweep(app, jobs.PurgeRecords, purge_records)
