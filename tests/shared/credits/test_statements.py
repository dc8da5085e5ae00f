"""Statements of months of random entries equal the ledger: no entry is lost or counted twice."""

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

import pytest
from sqlalchemy import text

from shared.credits.ledger import KINDS
from shared.credits.statements import Balances, Statement, list_statements, next_month, read_statement
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.errors import ResourceNotFound
from tests.shared.credits.calls import Calls
from tests.support.data.query_plans import recorded_statements, rows_read

_INSERT = text(
    "INSERT INTO ledger_entries (organization_id, version, kind, reference, amount, balance_after, occurred_at)"
    " VALUES (CAST(:id AS uuid), :version, :kind, :reference, :amount, :balance_after, :occurred_at)"
)
FIRST = date(2026, 1, 1)
MONTHS = 5


@dataclass(frozen=True, kw_only=True)
class Made:
    """An entry of a test's ledger."""

    kind: str
    amount: int
    occurred_at: datetime

    @property
    def month(self) -> date:
        return self.occurred_at.date().replace(day=1)


def random_entries(seed: int) -> list[Made]:
    """Return months of entries with times out of order by up to half an hour, many of them around midnight."""
    chance = random.Random(seed)
    moment, entries = datetime(2026, 1, 20, tzinfo=UTC), []
    end = datetime(2026, 5, 20, tzinfo=UTC)
    while moment < end:
        late = timedelta(minutes=chance.randint(0, 30))
        amount = chance.choice([-1, 1]) * chance.randint(1, 10**9)
        entries.append(Made(kind=chance.choice(KINDS), amount=amount, occurred_at=moment - late))
        is_near_the_end = (moment + timedelta(hours=3)).month != moment.month or moment.day == 1
        moment += timedelta(minutes=chance.randint(0, 20 if is_near_the_end else 4000))
    return entries


def write(calls: Calls, entries: list[Made]) -> None:
    balance = 0
    with calls.database.transaction() as session:
        for version, entry in enumerate(entries, start=1):
            balance += entry.amount
            values = {"kind": entry.kind, "amount": entry.amount, "occurred_at": entry.occurred_at}
            values |= {"id": str(calls.organization_id), "version": version, "reference": str(version)}
            session.execute(_INSERT, {**values, "balance_after": balance})


def statement_of(calls: Calls, month: date) -> Statement:
    with calls.database.transaction() as session:
        return read_statement(session, actor=OPERATOR, organization_id=calls.organization_id, month=month)


@pytest.mark.parametrize("seed", range(3))
def test_statements_sum_to_the_ledger(calls: Calls, seed: int) -> None:
    entries = random_entries(seed)
    write(calls, entries)
    month, months = FIRST, []
    for _ in range(MONTHS):
        months.append(statement_of(calls, month))
        month = next_month(month)
    for statement in months:
        assert statement.opening == sum(at.amount for at in entries if at.month < statement.month)
        assert statement.closing == sum(at.amount for at in entries if at.month <= statement.month)
        for line in statement.lines:
            of_kind = [at for at in entries if (at.month, at.kind) == (statement.month, line.kind)]
            assert (line.entries, line.amount) == (len(of_kind), sum(at.amount for at in of_kind))
        assert statement.opening + sum(line.amount for line in statement.lines) == statement.closing
    assert [line.kind for line in months[0].lines] == list(KINDS)
    assert sum(line.entries for statement in months for line in statement.lines) == len(entries)


def test_statement_list_has_every_month_with_the_balances_of_its_statement(calls: Calls) -> None:
    write(calls, random_entries(7))
    listed: list[Balances] = []
    before = None
    while True:
        with calls.database.transaction() as session:
            page = list_statements(
                session, actor=OPERATOR, organization_id=calls.organization_id, before=before, limit=2
            )
        listed += page.items
        if page.next_cursor is None:
            break
        before = date.fromisoformat(f"{page.next_cursor}-01")
    assert [at.month for at in listed] == sorted((at.month for at in listed), reverse=True)
    assert (listed[-1].month, listed[0].month) == (FIRST, datetime.now(UTC).date().replace(day=1))
    for at in listed:
        statement = statement_of(calls, at.month)
        assert (at.opening, at.closing, at.is_final) == (
            statement.opening,
            statement.closing,
            statement.is_final,
        )
    assert [at.closing for at in listed[1:]] == [at.opening for at in listed[:-1]]


def test_the_present_month_is_not_final_and_closes_with_the_balance(calls: Calls, database: Database) -> None:
    calls.top_up(10_000)
    calls.charge(1_234)
    statement = statement_of(calls, datetime.now(UTC).date().replace(day=1))
    assert not statement.is_final
    assert statement.closing == calls.balance.balance == 8_766
    lines = {line.kind: (line.entries, line.amount) for line in statement.lines if line.entries}
    assert lines == {"top_up": (1, 10_000), "charge": (1, -1_234)}


_MANY = """
INSERT INTO ledger_entries (organization_id, version, kind, reference, amount, balance_after, occurred_at)
SELECT CAST(:id AS uuid), n, CASE WHEN n % 1000 = 0 THEN 'storage' ELSE 'charge' END, n::text, -1, -n,
    timestamptz '2026-01-01 00:00Z' + n * interval '2 minutes'
FROM generate_series(1, 40000) AS n
"""


def test_a_month_of_many_charges_is_not_read_one_by_one(calls: Calls, database: Database) -> None:
    calls.run(_MANY, id=calls.organization_id)
    calls.run("ANALYZE ledger_entries")
    with recorded_statements(database, beginning=("WITH",)) as statements:
        lines = {line.kind: (line.entries, line.amount) for line in statement_of(calls, FIRST).lines}
    in_january = 31 * 24 * 30 - 1
    assert (lines["charge"], lines["storage"]) == ((in_january - 22, 22 - in_january), (22, -22))
    for statement in statements:
        read, plan = rows_read(database, statement)
        assert read < 500, plan


def test_an_organization_without_entries_has_no_statements(calls: Calls) -> None:
    with calls.database.transaction() as session:
        page = list_statements(session, actor=OPERATOR, organization_id=calls.organization_id)
    assert (page.items, page.next_cursor) == ((), None)
    assert statement_of(calls, FIRST).closing == 0


def test_a_month_that_has_not_begun_has_no_statement(calls: Calls) -> None:
    with pytest.raises(ResourceNotFound):
        statement_of(calls, next_month(datetime.now(UTC).date()))
