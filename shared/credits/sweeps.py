"""Recover calls whose process died, by releasing holds and settling by estimate, and delete old invocations.

Batches are claimed with SKIP LOCKED, so that concurrent sweeps share the work and never wait for a settlement.
"""

from datetime import timedelta

from sqlalchemy import text

from shared.credits.sql_functions import call_count
from shared.db.database import Database
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import LEDGER
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain, run_in_batches

BATCH_SIZE = 200
GRACE = timedelta(seconds=20)
"""How long after its lease an unresolved call waits for its worker, which may only have lost its connection."""
KEPT = timedelta(days=30)
"""How long an ended invocation can still be corrected. Its usage record and ledger entries are kept longer."""


@sweep("credits.release_overdue_holds", queue=LEDGER, every_seconds=5)
def _release_overdue_holds(context: Context) -> int:
    # Both functions find calls by the end of a lease, so one job runs both.
    return release_overdue_holds(context.database) + mark_unresolved(context.database)


@sweep("credits.settle_unresolved", queue=LEDGER, every_seconds=10)
def _settle_unresolved(context: Context) -> int:
    return settle_unresolved(context.database)


@sweep("credits.purge_invocations", queue=LEDGER, every_seconds=3600)
def _purge_invocations(context: Context) -> int:
    return purge_invocations(context.database)


def release_overdue_holds(database: Database) -> int:
    """Release the holds of calls that were not dispatched before their lease ended. Return how many."""
    return _repeat(database, "released", "credits_release_overdue")


def mark_unresolved(database: Database) -> int:
    """Mark dispatched calls without a renewed lease as unresolved; their holds stay. Return how many."""
    return _repeat(database, "unresolved", "credits_mark_unresolved")


def settle_unresolved(database: Database, *, grace: timedelta = GRACE) -> int:
    """Settle by estimate the calls that are still unresolved after the grace period. Return how many."""
    return _repeat(database, "settled_by_estimate", "credits_settle_unresolved", grace=grace)


_PURGE = text(
    """
DELETE FROM invocations WHERE id = ANY (ARRAY(
    SELECT id FROM invocations
    WHERE created_at < now() - CAST(:kept AS interval) AND ended_at < now() - CAST(:kept AS interval)
    LIMIT :limit FOR UPDATE SKIP LOCKED
))
"""
)


def purge_invocations(database: Database, *, kept: timedelta = KEPT) -> int:
    """Delete invocations that ended more than `kept` ago. Return how many."""
    return run_in_batches(database, _PURGE, {"kept": kept}, size=BATCH_SIZE, swept="invocations")


def _repeat(database: Database, sweep: str, function: str, **arguments: object) -> int:
    def batch() -> int:
        with database.autocommit() as session:
            found = call_count(session, function, **arguments, limit=BATCH_SIZE)
        # Count each batch separately, so that the metric includes the work of an interrupted run.
        SWEPT.labels(sweep).inc(found)
        return found

    return drain(batch, size=BATCH_SIZE)
