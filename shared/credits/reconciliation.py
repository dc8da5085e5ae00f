"""Compare entries, balances, holds, usage, rollups and storage, and report discrepancies. Nothing is repaired.

Two statements check an organization, each in one snapshot. Writers change all sides in one transaction, so any
difference is an error. An operator examines a discrepancy and corrects it by an adjustment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row, select, text

from shared.credits.tables import credit_balances
from shared.credits.usage.usage_query import SUMS
from shared.db.database import Database, Session
from shared.messaging.jobs import Context, sweep
from shared.messaging.queues import LEDGER
from shared.observability.telemetry import LEDGER_DISCREPANCIES, get_logger
from shared.runtime.batches import must_stop

log = get_logger(__name__)

MAX_REPORTED = 100
"""Reported discrepancies of one kind for one organization, and logged ones in total."""
_STATEMENT_TIMEOUT = "15min"

KINDS = {
    "posted": "the balance is not the sum of its entries",
    "version": "the balance does not count its entries",
    "chain": "an entry is missing, out of order, or does not continue the balance",
    "held": "the held amount is not the sum of the open invocations' holds",
    "calls": "the number of open calls is not that of the open invocations",
    "spent": "the amount spent this month is not the sum of the month's charges",
    "usage": "a call's usage record and its entries state different costs, or one of them is missing",
    "price": "a usage record's cost is not its tokens at the prices of its invocation",
    "state": "an invocation is settled without a usage record that is kept, or has one without being settled",
    "rollup": "the hourly sums are not those of the records, or the daily sums not those of the hours",
    "storage": "a day of storage and its entry state different costs, or one of them is missing",
    "storage_cost": "the cost of a day of storage is not its byte-time at its price plus the carried remainder",
    "storage_gap": "a day of storage is missing although bytes were stored at the end of the day before",
    "storage_parts": "the parts of the current day by purpose, owner and distribution do not add up to the day",
    "overdue": "an organization that has credits counts as one that owes for storage",
    "limits": "the number of limits is not that of the budgets and model allowlists",
    "budget_held": "the held amount of a budget is not the sum of the open invocations in it",
    "budget_spent": "the spent amount of a budget is not the sum of the usage records in it",
    "orphan": "an organization has entries and no balance",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Discrepancy:
    """Two figures that should be equal; `reference` names the entry, invocation, day or hour, if there is one."""

    organization_id: UUID
    kind: str
    reference: str | None
    expected: int
    found: int

    @property
    def meaning(self) -> str:
        """The explanation of the discrepancy's kind."""
        return KINDS[self.kind]


def reconcile(session: Session, organization_id: UUID | None = None) -> list[Discrepancy]:
    """Return the discrepancies of one organization, or of all organizations. The list is empty if all figures agree."""
    session.execute(text(f"SET LOCAL statement_timeout = '{_STATEMENT_TIMEOUT}'"))
    if organization_id is not None:
        return _check(session, organization_id)
    found = [_discrepancy(row) for row in session.execute(_ORPHANS)]
    for at in session.execute(select(credit_balances.c.organization_id)).scalars().all():
        found += _check(session, at)
    return found


@sweep("credits.prove_ledger", queue=LEDGER, every_seconds=3600)
def _reconcile_ledger(context: Context) -> int:
    return context.once(_new_ledger_check).step(context.database)


def _new_ledger_check(_: Context) -> LedgerCheck:
    return LedgerCheck()


class LedgerCheck:
    """A check of all organizations, over one or more runs of the job. Each run continues where the last run stopped."""

    def __init__(self) -> None:
        self._left: list[UUID] = []
        self._found: list[Discrepancy] = []

    def step(self, database: Database) -> int:
        """Check the remaining organizations until the job's time budget ends, each in its own transaction.

        After the last organization, report all discrepancies. Return their number, or 0 if the check is not
        complete.
        """
        if not self._left:
            self._begin(database)
        while self._left:
            # Remove it from the list first: an organization must not block the others for ever if its check fails.
            organization_id = self._left.pop()
            with database.transaction() as session:
                self._found += reconcile(session, organization_id)
            if self._left and must_stop():
                return 0
        _report(self._found)
        return len(self._found)

    def _begin(self, database: Database) -> None:
        with database.transaction() as session:
            self._found = [_discrepancy(row) for row in session.execute(_ORPHANS)]
            self._left = list(session.execute(select(credit_balances.c.organization_id)).scalars())


def _report(found: Sequence[Discrepancy]) -> None:
    counts = Counter(discrepancy.kind for discrepancy in found)
    # Set the metric of every kind, including kinds with 0, so that the metric falls when a discrepancy was
    # corrected.
    for kind in KINDS:
        LEDGER_DISCREPANCIES.labels(kind).set(counts[kind])
    for discrepancy in found[:MAX_REPORTED]:
        log.warning(
            "credits.discrepancy",
            organization_id=discrepancy.organization_id,
            kind=discrepancy.kind,
            meaning=discrepancy.meaning,
            reference=discrepancy.reference,
            expected=discrepancy.expected,
            found=discrepancy.found,
        )


# Use a recursive CTE, which jumps in the index from organization to organization: a DISTINCT would read every
# entry.
_ORPHANS = text(
    """
WITH RECURSIVE entered AS (
    (SELECT organization_id FROM ledger_entries ORDER BY organization_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT organization_id FROM ledger_entries e WHERE e.organization_id > entered.organization_id
        ORDER BY organization_id LIMIT 1
    ) FROM entered WHERE entered.organization_id IS NOT NULL
)
SELECT organization_id, 'orphan' AS kind, NULL AS reference, 0 AS expected,
    (SELECT count(*) FROM ledger_entries e WHERE e.organization_id = entered.organization_id) AS found
FROM entered WHERE organization_id IS NOT NULL
    AND NOT EXISTS (SELECT FROM credit_balances b WHERE b.organization_id = entered.organization_id)
"""
)

_CHECK = text(
    """
WITH balance AS (SELECT * FROM credit_balances WHERE organization_id = CAST(:organization_id AS uuid)),
entries AS MATERIALIZED (
    SELECT *, sum(amount) OVER (ORDER BY version) AS running, row_number() OVER (ORDER BY version) AS place
    FROM ledger_entries WHERE organization_id = CAST(:organization_id AS uuid)
),
used AS MATERIALIZED (SELECT * FROM usage_records WHERE organization_id = CAST(:organization_id AS uuid)),
called AS MATERIALIZED (SELECT * FROM invocations WHERE organization_id = CAST(:organization_id AS uuid)),
charged AS (
    SELECT reference, -sum(amount) AS cost FROM entries WHERE kind IN ('charge', 'correction') GROUP BY 1
),
pruned AS MATERIALIZED (SELECT * FROM pruned_usage WHERE organization_id = CAST(:organization_id AS uuid)),
unrecorded AS (
    SELECT coalesce(sum(cost), 0) <> (SELECT coalesce(sum(amount), 0) FROM pruned WHERE budget_id IS NULL) AS is_wrong
    FROM charged WHERE NOT EXISTS (SELECT FROM used WHERE used.invocation_id::text = charged.reference)
),
days AS MATERIALIZED (
    SELECT *, div(credits_storage_unit() * price_days, 30) AS unit,
        div(lag(remainder, 1, 0::numeric) OVER (ORDER BY day) * price_days,
            lag(price_days, 1, 30::smallint) OVER (ORDER BY day)) AS carried, lead(day) OVER (ORDER BY day) AS next_day,
        greatest(byte_microseconds, 0) * price AS exact
    FROM storage_days WHERE organization_id = CAST(:organization_id AS uuid)
),
budgeted AS MATERIALIZED (SELECT * FROM budgets WHERE organization_id = CAST(:organization_id AS uuid))
SELECT 'posted' AS kind, NULL AS reference, (SELECT coalesce(sum(amount), 0) FROM entries) AS expected, posted AS found
FROM balance WHERE posted <> (SELECT coalesce(sum(amount), 0) FROM entries)
UNION ALL
SELECT 'version', NULL, (SELECT count(*) FROM entries), version
FROM balance WHERE version <> (SELECT count(*) FROM entries)
UNION ALL
(SELECT 'chain', version::text, running, balance_after
FROM entries WHERE balance_after <> running OR version <> place ORDER BY version LIMIT :most)
UNION ALL
SELECT 'held', NULL, open.hold, held
FROM balance, (
    SELECT coalesce(sum(hold), 0) AS hold FROM called WHERE state IN ('held', 'dispatched', 'unresolved')
) AS open WHERE held <> open.hold
UNION ALL
SELECT 'calls', NULL, open.calls, balance.calls
FROM balance, (
    SELECT count(*) AS calls FROM called WHERE state IN ('held', 'dispatched', 'unresolved')
) AS open WHERE balance.calls <> open.calls
UNION ALL
SELECT 'spent', NULL, month.spent, balance.spent
FROM balance, (
    SELECT coalesce(-sum(amount), 0) AS spent FROM entries, balance
    WHERE kind IN ('charge', 'correction', 'storage')
        AND occurred_at >= (balance.spent_month::timestamp AT TIME ZONE 'UTC')
        AND occurred_at < ((balance.spent_month + interval '1 month') AT TIME ZONE 'UTC')
) AS month WHERE balance.spent <> month.spent AND balance.spent_month > '1970-01-01'
UNION ALL
(SELECT 'usage', coalesce(invocation_id::text, reference), coalesce(used.cost, 0), coalesce(charged.cost, 0)
FROM used FULL JOIN charged ON charged.reference = used.invocation_id::text
WHERE CASE WHEN used.invocation_id IS NULL THEN (SELECT is_wrong FROM unrecorded)
    ELSE used.cost <> coalesce(charged.cost, 0) END LIMIT :most)
UNION ALL
(SELECT 'price', invocation_id::text, owed, cost
FROM used JOIN called ON called.id = invocation_id,
    credits_cost(
        called::invocations, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens, reasoning_tokens
    ) AS owed
WHERE cost <> owed LIMIT :most)
UNION ALL
(SELECT 'state', called.id::text, (state = 'settled')::integer, (invocation_id IS NOT NULL)::integer
FROM called LEFT JOIN used ON invocation_id = called.id
WHERE (state = 'settled') <> (invocation_id IS NOT NULL)
    AND NOT (state = 'settled' AND ended_at < (SELECT pruned_to FROM usage_rollup)) LIMIT :most)
UNION ALL
(SELECT 'storage', coalesce(days.day::text, entry.reference), coalesce(days.cost, 0), coalesce(-entry.amount, 0)
FROM days FULL JOIN (SELECT * FROM entries WHERE kind = 'storage') AS entry ON entry.reference = days.day::text
WHERE coalesce(days.cost, 0) <> coalesce(-entry.amount, 0) LIMIT :most)
UNION ALL
(SELECT 'storage_cost', day::text, exact + coalesce(carried, 0), cost * unit + remainder
FROM days WHERE charged_at IS NOT NULL AND (
    exact + carried IS DISTINCT FROM cost * unit + remainder OR remainder < 0 OR remainder >= unit
) LIMIT :most)
UNION ALL
(SELECT 'storage_gap', day::text, 1, 0
FROM days WHERE price IS NOT NULL AND stored_bytes <> 0 AND next_day IS DISTINCT FROM day + 1 LIMIT :most)
UNION ALL
(SELECT 'storage_parts', day::text, days.stored_bytes, coalesce(parts.stored_bytes, 0)
FROM storage_mark, days LEFT JOIN LATERAL (
    SELECT sum(p.stored_bytes) AS stored_bytes, sum(p.byte_microseconds) AS byte_microseconds FROM storage_parts p
    WHERE p.organization_id = days.organization_id AND p.day = days.day
) AS parts ON true
WHERE price IS NULL AND parts_to = measured_to AND (coalesce(parts.stored_bytes, 0) <> days.stored_bytes
    OR coalesce(parts.byte_microseconds, 0) <> days.byte_microseconds) LIMIT :most)
UNION ALL
SELECT 'overdue', NULL, 0, 1 FROM balance WHERE storage_overdue_since IS NOT NULL AND posted + overdraft >= 0
UNION ALL
SELECT 'limits', NULL, present.limits, balance.limits
FROM balance, (
    SELECT (SELECT count(*) FROM budgeted)
        + (SELECT count(*) FROM key_models WHERE organization_id = CAST(:organization_id AS uuid)) AS limits
) AS present WHERE balance.limits <> present.limits
UNION ALL
(SELECT 'budget_held', b.id::text, open.held, b.held
FROM budgeted b, LATERAL (
    SELECT coalesce(sum(credits_in_unit(b.unit, hold, held_tokens, 1)), 0) AS held FROM called
    WHERE b.id = ANY (budget_ids) AND b.starts_at = credits_period_start(b.period, budgeted_at)
        AND state IN ('held', 'dispatched', 'unresolved')
) AS open WHERE b.held <> open.held LIMIT :most)
UNION ALL
(SELECT 'budget_spent', b.id::text, period.spent, b.spent
FROM budgeted b, LATERAL (
    SELECT coalesce(sum(credits_in_unit(b.unit, cost, prompt_tokens + completion_tokens, 1)), 0) + coalesce((
        SELECT amount FROM pruned WHERE budget_id = b.id AND pruned.starts_at = b.starts_at
    ), 0) AS spent FROM used
    WHERE b.id = ANY (budget_ids) AND b.starts_at = credits_period_start(b.period, budgeted_at)
) AS period WHERE b.spent <> period.spent LIMIT :most)
"""
)


_GROUP = "model, user_id, identity_id, principal_id, deployment_id, api_key_id, distribution_id"


def _differences(step: str, exact: str, kept: str) -> str:
    """Return a statement that selects the hours or days whose stored sums (`kept`) differ from the exact sums.

    Both arguments are selects of a step, the columns of a group, and figures.
    """
    # Sum with opposite signs instead of a full join: the group's columns may be null, and a join does not match
    # nulls.
    figures = [(name, f"sum(CASE WHEN is_exact THEN {name} ELSE -{name} END)") for name in SUMS]
    return f"""
SELECT 'rollup' AS kind, to_char(step AT TIME ZONE 'UTC', '{step}') AS reference,
    coalesce(sum(cost) FILTER (WHERE is_exact), 0) AS expected,
    coalesce(sum(cost) FILTER (WHERE NOT is_exact), 0) AS found
FROM (SELECT true AS is_exact, {exact} UNION ALL SELECT false, {kept}) AS both_sides
GROUP BY step, {_GROUP} HAVING {" OR ".join(f"{difference} <> 0" for _, difference in figures)}
"""  # noqa: S608 (this module's names only)


def _sums(step: str, invocations: str, table: str) -> str:
    return (
        f"{step} AS step, {_GROUP}, {invocations} AS invocations, {', '.join(SUMS[1:])} FROM {table}"
        " WHERE organization_id = CAST(:organization_id AS uuid)"
    )


_MARK = "(SELECT rolled_up_to FROM usage_rollup)"
_PRUNED = "(SELECT pruned_to FROM usage_rollup)"
_MIDNIGHT = "(SELECT date_trunc('day', rolled_up_to, 'UTC') FROM usage_rollup)"
_HOURS = _differences(
    'YYYY-MM-DD"T"HH24"Z"',
    _sums("date_trunc('hour', occurred_at, 'UTC')", "1", "usage_records")
    + f" AND occurred_at < {_MARK} AND occurred_at >= {_PRUNED}",
    _sums("hour", "invocations", "usage_hours") + f" AND hour >= {_PRUNED}",
)
_DAYS = _differences(
    "YYYY-MM-DD",
    _sums("date_trunc('day', hour, 'UTC')", "invocations", "usage_hours") + f" AND hour < {_MIDNIGHT}",
    _sums("day", "invocations", "usage_days"),
)
_OF_ORGANIZATION = "organization_id = CAST(:organization_id AS uuid)"
# Records of the hours before `pruned_to` may have been pruned, so compare only the total: remaining records plus
# pruned amounts.
_PRUNED_HOURS = f"""
SELECT 'rollup' AS kind, NULL AS reference, pruned + kept AS expected, in_hours AS found FROM (
    SELECT (SELECT coalesce(sum(amount), 0) FROM pruned_usage WHERE {_OF_ORGANIZATION} AND budget_id IS NULL) AS pruned,
        (SELECT coalesce(sum(cost), 0) FROM usage_records WHERE {_OF_ORGANIZATION} AND occurred_at < {_PRUNED}) AS kept,
        (SELECT coalesce(sum(cost), 0) FROM usage_hours WHERE {_OF_ORGANIZATION} AND hour < {_PRUNED}) AS in_hours
) AS sums WHERE pruned + kept <> in_hours
"""  # noqa: S608 (this module's names only)
_ROLLUPS = text(f"({_HOURS} LIMIT :most) UNION ALL ({_DAYS} LIMIT :most) UNION ALL ({_PRUNED_HOURS})")


def _check(session: Session, organization_id: UUID) -> list[Discrepancy]:
    values = {"organization_id": str(organization_id), "most": MAX_REPORTED}
    rows = [*session.execute(_CHECK, values), *session.execute(_ROLLUPS, values)]
    return [
        Discrepancy(
            organization_id=organization_id,
            kind=row.kind,
            reference=row.reference,
            expected=int(row.expected),
            found=int(row.found),
        )
        for row in rows
    ]


def _discrepancy(row: Row[Any]) -> Discrepancy:
    return Discrepancy(**{**row._asdict(), "expected": int(row.expected), "found": int(row.found)})
