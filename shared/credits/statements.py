"""Monthly statements of an organization's ledger, by calendar month in UTC.

A statement has the opening balance, the sum of the entries of each kind, and the closing balance. Each statement is
computed from the ledger alone, so the sum of all statements equals the ledger.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from uuid import UUID

from sqlalchemy import text

from shared.credits.authorization import authorize_administrative_reading
from shared.credits.ledger import KINDS
from shared.db.database import Session
from shared.identity.access.authorization import Actor
from shared.identity.access.permissions import Permission
from shared.identity.errors import ResourceNotFound
from shared.pagination import Page

DEFAULT_MONTHS = 12
_CHARGE = "charge"
_OTHERS = [kind for kind in KINDS if kind != _CHARGE]


@dataclass(frozen=True, slots=True, kw_only=True)
class Balances:
    """The balances before and after a month, in µcr; `closing` is the current balance until the month is over."""

    month: date
    opening: int
    closing: int
    is_final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StatementLine:
    """The number of a month's entries of one kind, and their sum."""

    kind: str
    entries: int
    amount: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """The statement of one month. `lines` has a line for every kind of entry, including kinds without entries."""

    organization_id: UUID
    month: date
    opening: int
    lines: tuple[StatementLine, ...]
    closing: int
    is_final: bool


def read_statement(session: Session, *, actor: Actor, organization_id: UUID, month: date) -> Statement:
    """Return the statement of the month that begins on the day `month`.

    Raises PermissionDenied, and ResourceNotFound for a month that has not begun.
    """
    authorize_administrative_reading(session, actor, Permission.CREDIT_READ, organization_id)
    now = datetime.now(UTC)
    if month > now.date():
        raise ResourceNotFound("The month has not begun, so it has no statement yet.")
    values = {"organization_id": str(organization_id), "first": month, "next": next_month(month)}
    rows = {row.kind: row for row in session.execute(_LINES, {**values, "others": _OTHERS})}
    lines = tuple(
        StatementLine(kind=kind, entries=int(rows[kind].entries), amount=int(rows[kind].amount))
        if kind in rows
        else StatementLine(kind=kind, entries=0, amount=0)
        for kind in KINDS
    )
    opening = int(session.execute(_OPENING, values).scalar_one())
    return Statement(
        organization_id=organization_id,
        month=month,
        opening=opening,
        lines=lines,
        closing=opening + sum(line.amount for line in lines),
        is_final=_is_final(month, now),
    )


def list_statements(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    before: date | None = None,
    limit: int = DEFAULT_MONTHS,
) -> Page[Balances]:
    """Return a page of the months since an organization's first entry, newest first.

    If `before` is given, return only months before it.
    """
    authorize_administrative_reading(session, actor, Permission.CREDIT_READ, organization_id)
    now = datetime.now(UTC)
    newest = (
        now.date().replace(day=1)
        if before is None
        else (before.replace(day=1) - timedelta(days=1)).replace(day=1)
    )
    values = {"organization_id": str(organization_id), "newest": newest, "limit": limit + 1}
    rows = session.execute(_MONTHS, values).all()
    items = tuple(
        Balances(
            month=row.month, opening=row.opening, closing=row.closing, is_final=_is_final(row.month, now)
        )
        for row in rows[:limit]
    )
    return Page(items=items, next_cursor=f"{items[-1].month:%Y-%m}" if len(rows) > limit else None)


def next_month(month: date) -> date:
    """Return the first day of the next month."""
    # 32 days after the first always lie in the next month.
    return (month.replace(day=1) + timedelta(days=32)).replace(day=1)


def _is_final(month: date, now: datetime) -> bool:
    """Return whether no further entry can belong to a month.

    A month is final one hour after its end, as in `credits_balance_before`.
    """
    return datetime.combine(next_month(month), datetime.min.time(), UTC) + timedelta(hours=1) <= now


_OPENING = text(
    "SELECT credits_balance_before(CAST(:organization_id AS uuid), CAST(:first AS timestamp) AT TIME ZONE 'UTC')"
)
# A month can have a million charges, so do not sum the charges: compute them as the difference of two balances,
# less the entries of other kinds. Read single entries only in the hour before and the hour after each end of the
# month, because the times of concurrent transactions may be out of order there.
_LINES = text(
    """
WITH bounds AS (
    SELECT CAST(:organization_id AS uuid) AS id, CAST(:first AS timestamp) AT TIME ZONE 'UTC' AS starts_at,
        CAST(:next AS timestamp) AT TIME ZONE 'UTC' AS ends_at
), versions AS MATERIALIZED (
    SELECT *, credits_first_since(id, starts_at - interval '1 hour') AS first,
        credits_first_since(id, starts_at + interval '1 hour') AS inner_first,
        credits_first_since(id, ends_at - interval '1 hour') AS inner_beyond,
        credits_first_since(id, ends_at + interval '1 hour') AS beyond
    FROM bounds
), edges AS (
    SELECT e.kind, 1 AS entries, e.amount
    FROM versions CROSS JOIN LATERAL (
        SELECT kind, amount, occurred_at FROM ledger_entries
        WHERE organization_id = id AND version >= versions.first AND version < inner_first
        UNION ALL
        SELECT kind, amount, occurred_at FROM ledger_entries
        WHERE organization_id = id AND version >= inner_beyond AND version < beyond
    ) AS e
    WHERE e.occurred_at >= starts_at AND e.occurred_at < ends_at
), others AS MATERIALIZED (
    SELECT e.kind, count(*) AS entries, sum(e.amount) AS amount
    FROM versions JOIN ledger_entries e ON e.organization_id = versions.id AND e.kind = ANY(:others)
        AND e.version >= inner_first AND e.version < inner_beyond
    GROUP BY e.kind
), charges AS (
    SELECT 'charge' AS kind, inner_beyond - inner_first - (SELECT coalesce(sum(entries), 0) FROM others) AS entries,
        coalesce(afterwards.balance_after, 0) - coalesce(before.balance_after, 0)
        - (SELECT coalesce(sum(amount), 0) FROM others) AS amount
    FROM versions
    LEFT JOIN ledger_entries before ON before.organization_id = id AND before.version = inner_first - 1
    LEFT JOIN ledger_entries afterwards ON afterwards.organization_id = id AND afterwards.version = inner_beyond - 1
)
SELECT kind, sum(entries) AS entries, sum(amount) AS amount
FROM (SELECT * FROM edges UNION ALL SELECT * FROM others UNION ALL SELECT * FROM charges) AS parts
GROUP BY kind
"""
)
_MONTHS = text(
    """
WITH months AS (
    SELECT month FROM ledger_entries e, generate_series(
        CAST(:newest AS timestamp), date_trunc('month', e.occurred_at AT TIME ZONE 'UTC'), interval '-1 month'
    ) AS month
    WHERE e.organization_id = CAST(:organization_id AS uuid) AND e.version = 1
    ORDER BY month DESC LIMIT :limit
)
SELECT month::date AS month,
    credits_balance_before(CAST(:organization_id AS uuid), month AT TIME ZONE 'UTC') AS opening,
    credits_balance_before(
        CAST(:organization_id AS uuid), (month + interval '1 month') AT TIME ZONE 'UTC'
    ) AS closing
FROM months ORDER BY month DESC
"""
)
