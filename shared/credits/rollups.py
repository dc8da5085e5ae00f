"""Keep the hourly sums of usage: the current and the previous hour are recomputed from the records every minute.

The mark says up to which moment the rollups are complete. It stays behind the clock for longer than any transaction
may last, so that no record can still appear before it; reports read what is after it from the records. Hours that were
missed while nothing ran are made up for.
"""

from __future__ import annotations

from datetime import timedelta

from sqlalchemy import text

from shared.credits.functions import call_count
from shared.database import Database
from shared.jobs import Context, sweep
from shared.queues import LEDGER

SLACK = timedelta(minutes=2)
"""Longer than a statement, or a pause between two in a transaction, may take (`shared/database.py`), together."""
_STATEMENT_TIMEOUT = "10min"

_LOCK_MARK = text(
    """
SELECT date_trunc('hour', rolled_up_to, 'UTC') - interval '1 hour' AS starts_at,
    now() - CAST(:slack AS interval) AS ends_at
FROM usage_rollup WHERE rolled_up_to < now() - CAST(:slack AS interval) FOR UPDATE SKIP LOCKED
"""
)
_MOVE_MARK = text("UPDATE usage_rollup SET rolled_up_to = :mark")


@sweep("credits.roll_up_usage", queue=LEDGER, every_seconds=60)
def _roll_up_usage(context: Context) -> int:
    return roll_up_usage(context.database)


def roll_up_usage(database: Database, *, slack: timedelta = SLACK) -> int:
    """Bring the rollups up to date and return how many rows changed; does nothing while another does it."""
    with database.transaction() as session:
        session.execute(text(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'"))
        hours = session.execute(_LOCK_MARK, {"slack": slack}).one_or_none()
        if hours is None:
            return 0
        span = {"from": hours.starts_at, "to": hours.ends_at}
        written = call_count(session, "credits_roll_up", **span, organization_id=None)
        session.execute(_MOVE_MARK, {"mark": hours.ends_at})
    return written
