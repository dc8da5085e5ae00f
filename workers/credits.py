"""Handlers of the credits domain's jobs."""

from __future__ import annotations

from celery import Celery

from shared.credits import jobs
from shared.credits.reconciliation import prove_ledger
from shared.credits.rollups import roll_up_usage
from shared.credits.sweeps import (
    mark_unresolved,
    purge_invocations,
    release_overdue_holds,
    settle_unresolved,
)
from workers.handling import WorkerContext, bind_sweep


def bind_credits(app: Celery, context: WorkerContext) -> None:
    """Bind the credits domain's jobs."""

    def sweep_leases() -> int:
        return release_overdue_holds(context.database) + mark_unresolved(context.database)

    bind_sweep(app, jobs.ReleaseOverdueHolds, sweep_leases)
    bind_sweep(app, jobs.SettleUnresolved, lambda: settle_unresolved(context.database))
    bind_sweep(app, jobs.RollUpUsage, lambda: roll_up_usage(context.database))
    bind_sweep(app, jobs.ProveLedger, lambda: prove_ledger(context.database))
    bind_sweep(app, jobs.PurgeInvocations, lambda: purge_invocations(context.database))
