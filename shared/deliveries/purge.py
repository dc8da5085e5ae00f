"""Delete old rows of the outbox: delivered messages, and later dead letters with their bodies.

The sweep also releases orders whose held messages have no head (`ordering.py`).
"""

from datetime import timedelta

from sqlalchemy import text

from shared.db.database import Database
from shared.deliveries.ordering import release_stalled
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import RETENTION
from shared.runtime.batches import run_in_batches

BATCH_SIZE = 500
DELIVERED_KEPT = timedelta(days=7)
DEAD_KEPT = timedelta(days=30)
"""The time for which a dead message is kept and can be replayed."""

_PURGE = text(
    """
DELETE FROM deliveries WHERE id = ANY (ARRAY(
    SELECT id FROM deliveries WHERE state = :state AND ended_at < now() - CAST(:kept AS interval)
    LIMIT :limit FOR UPDATE SKIP LOCKED
))
"""
)


@sweep("deliveries.purge", queue=RETENTION, every_seconds=3600)
def _purge_deliveries(context: Context) -> int:
    return purge_deliveries(context.database)


def purge_deliveries(database: Database) -> int:
    """Delete old deliveries in batches. Return the number of deleted deliveries."""
    release_stalled(database)
    ended = (("Delivered", DELIVERED_KEPT), ("Dead", DEAD_KEPT))
    return sum(
        run_in_batches(database, _PURGE, {"state": state, "kept": kept}, size=BATCH_SIZE, swept="deliveries")
        for state, kept in ended
    )
