"""Prune usage records that are older than an operator keeps, and keep every sum that was made of them.

Reports of whole hours and days are made of the hourly and daily sums, statements of the ledger: both stay. What the
proof (`reconciliation.py`) adds up from records is kept in `pruned_usage`, in the transaction that deletes them: what
they cost, and what they count in the present period of a budget. `pruned_to` in the mark of the sums says before which
hour records may be gone. It is behind all that can still change: hours that are not final, and calls that can be
corrected, because a correction adds its hour up anew. Records are kept for 35 days at the least (`shared/settings.py`),
longer than any window or period of a budget that begins anew.
"""

from datetime import timedelta

from sqlalchemy import text

from shared import failpoints
from shared.database import Database
from shared.jobs import Context, sweep
from shared.queues import LEDGER
from shared.sweeping import run_in_batches

BATCH_SIZE = 500

# Calls begin in the order of their ids. A record is written after its call began, so one of an hour before the oldest
# call that is still known can no longer be corrected.
_MOVE_MARK = text(
    """
UPDATE usage_rollup SET pruned_to = bound.at
FROM (
    SELECT date_trunc('hour', least(
        now() - CAST(:kept AS interval), rolled_up_to - interval '2 days',
        (SELECT created_at FROM invocations ORDER BY id LIMIT 1)
    ), 'UTC') AS at FROM usage_rollup
) AS bound
WHERE bound.at > pruned_to
"""
)
# By id, which is in the order of their moments: what is read is what goes. Locks only what is old, and what the proof
# alone reads: no call waits for it.
_PRUNE = text(
    """
WITH beyond AS (
    SELECT CAST(lpad(to_hex(CAST(extract(epoch FROM pruned_to) * 1000 AS bigint)), 12, '0') || repeat('0', 20) AS uuid)
        AS id
    FROM usage_rollup WHERE isfinite(pruned_to)
), due AS (
    SELECT invocation_id FROM usage_records
    WHERE occurred_at < (SELECT pruned_to FROM usage_rollup) AND invocation_id < (SELECT id FROM beyond)
    ORDER BY invocation_id LIMIT :limit FOR UPDATE SKIP LOCKED
), gone AS (
    DELETE FROM usage_records WHERE invocation_id IN (SELECT invocation_id FROM due) RETURNING *
), of_organization AS (
    SELECT organization_id, CAST(NULL AS uuid) AS budget_id, CAST(NULL AS timestamptz) AS starts_at, sum(cost) AS amount
    FROM gone GROUP BY organization_id
), of_budget AS (
    SELECT b.organization_id, b.id AS budget_id, b.starts_at,
        sum(credits_in_unit(b.unit, cost, prompt_tokens + completion_tokens, 1)) AS amount
    FROM gone JOIN budgets b ON b.id = ANY (budget_ids)
    WHERE b.starts_at = credits_period_start(b.period, budgeted_at)
    GROUP BY b.organization_id, b.id, b.starts_at
), added AS (
    INSERT INTO pruned_usage AS p (organization_id, budget_id, starts_at, amount)
    SELECT * FROM (SELECT * FROM of_organization UNION ALL SELECT * FROM of_budget) AS sums
    ORDER BY organization_id, budget_id
    ON CONFLICT (organization_id, budget_id, starts_at) DO UPDATE SET amount = p.amount + excluded.amount
)
SELECT 1 FROM gone
"""
)
_FORGET = text(
    """
DELETE FROM pruned_usage p WHERE budget_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM budgets b WHERE b.id = p.budget_id AND b.starts_at = p.starts_at)
"""
)


@sweep("credits.prune_usage", queue=LEDGER, every_seconds=3600)
def _prune_usage(context: Context) -> int:
    days = context.settings.usage_record_days
    return 0 if days is None else prune_usage(context.database, kept=timedelta(days=days))


def prune_usage(database: Database, *, kept: timedelta) -> int:
    """Delete usage records that are older than they are kept, and return how many; safe to repeat and to break off."""
    with database.autocommit() as session:
        session.execute(_MOVE_MARK, {"kept": kept})
        session.execute(_FORGET)
    failpoints.hit("usage.pruning")
    return run_in_batches(database, _PRUNE, size=BATCH_SIZE, swept="usage_records")
