"""Delete usage records that are older than `USAGE_RECORD_DAYS`, and keep all sums that include these records.

Hourly and daily sums and the ledger stay. The reconciliation (`shared/credits/reconciliation.py`) sums the cost,
and the amounts in the current period of budgets, from records. The transaction that deletes records adds their
amounts to `pruned_usage`. Records from before the hour `pruned_to` may be deleted, and no later correction changes
the hours before `pruned_to` (`credits_settle`). The setting is at least 35 days, longer than any window or
recurring period of a budget.
"""

from datetime import timedelta
from uuid import UUID

from sqlalchemy import text

from shared import failpoints
from shared.db.database import Database
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import LEDGER
from shared.observability.telemetry import SWEPT
from shared.runtime.batches import drain

BATCH_SIZE = 500
# Stay two days behind the mark of the rollups: earlier hours are final, so no correction recomputes them from
# deleted records.
_MOVE_MARK = text(
    """
UPDATE usage_rollup SET pruned_to = bound.at
FROM (
    SELECT date_trunc('hour', least(now() - CAST(:kept AS interval), rolled_up_to - interval '2 days'), 'UTC') AS at
    FROM usage_rollup
) AS bound
WHERE bound.at > pruned_to
"""
)
# Find records by organization and time, with one index scan for each organization: ids do not follow time, because
# ids of agents' calls are derived from their turns. Lock only old records and rows that the reconciliation reads,
# so that no call waits.
_PRUNE = text(
    """
WITH due AS (
    SELECT old.invocation_id FROM credit_balances b CROSS JOIN LATERAL (
        SELECT invocation_id FROM usage_records r
        WHERE r.organization_id = b.organization_id AND occurred_at < (SELECT pruned_to FROM usage_rollup)
        ORDER BY occurred_at LIMIT :limit FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE b.organization_id >= CAST(:since AS uuid)
    ORDER BY b.organization_id LIMIT :limit
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
SELECT organization_id FROM gone ORDER BY organization_id
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
    """Delete usage records that are older than `kept`. Return how many. The run can be interrupted and repeated."""
    with database.autocommit() as session:
        session.execute(_MOVE_MARK, {"kept": kept})
        session.execute(_FORGET)
    failpoints.hit("usage.pruning")
    since = UUID(int=0)

    def batch() -> int:
        nonlocal since
        with database.autocommit() as session:
            pruned = session.execute(_PRUNE, {"since": since, "limit": BATCH_SIZE}).scalars().all()
        since = pruned[-1] if pruned else since
        return len(pruned)

    total = drain(batch, size=BATCH_SIZE)
    SWEPT.labels("usage_records").inc(total)
    return total
