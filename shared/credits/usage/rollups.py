"""Update the rollups of usage: recompute the hourly sums of the current and previous hour every minute.

Rollups are complete up to the mark. The mark stays behind the clock by more than the longest transaction, so that
no transaction can later commit a record with a time before the mark.
"""

from datetime import timedelta

from sqlalchemy import text

from shared.credits.sql_functions import call_count
from shared.db.database import Database
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import LEDGER
from shared.runtime.batches import must_stop

SLACK = timedelta(minutes=2)
"""Longer than the timeouts of a statement and of an idle transaction (`shared/db/database.py`) together."""
_STATEMENT_TIMEOUT = "10min"

# Each transaction covers at most a day of records, so that a backlog is processed in steps. SKIP LOCKED makes a
# concurrent run return immediately instead of repeating the work.
_LOCK_MARK = text(
    """
SELECT date_trunc('hour', rolled_up_to, 'UTC') - interval '1 hour' AS starts_at, settled_at,
    CASE WHEN rolled_up_to > settled_at - interval '1 day' THEN settled_at ELSE least(settled_at, interval '1 day'
        + coalesce((SELECT min(occurred_at) FROM usage_records WHERE occurred_at >= rolled_up_to), settled_at))
    END AS ends_at
FROM (SELECT rolled_up_to, now() - CAST(:slack AS interval) AS settled_at FROM usage_rollup FOR UPDATE SKIP LOCKED) mark
WHERE rolled_up_to < settled_at
"""
)
_MOVE_MARK = text("UPDATE usage_rollup SET rolled_up_to = :mark")


@sweep("credits.roll_up_usage", queue=LEDGER, every_seconds=60)
def _roll_up_usage(context: Context) -> int:
    return roll_up_usage(context.database)


def roll_up_usage(database: Database, *, slack: timedelta = SLACK) -> int:
    """Update the rollups to the present. Return how many rows changed.

    If another process is updating the rollups, return 0 immediately.
    """
    written = 0
    while True:
        changed, is_behind = _roll_up(database, slack)
        written += changed
        if not is_behind or must_stop():
            return written


def _roll_up(database: Database, slack: timedelta) -> tuple[int, bool]:
    """Roll up the records of at most one day. Return how many rows changed, and whether a backlog remains."""
    with database.transaction() as session:
        session.execute(text(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'"))
        hours = session.execute(_LOCK_MARK, {"slack": slack}).one_or_none()
        if hours is None:
            return 0, False
        span = {"from": hours.starts_at, "to": hours.ends_at}
        written = call_count(session, "credits_roll_up", **span, organization_id=None)
        session.execute(_MOVE_MARK, {"mark": hours.ends_at})
    return written, hours.ends_at < hours.settled_at
