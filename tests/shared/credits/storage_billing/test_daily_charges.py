"""Storage is charged regardless of the balance; an unpaid charge starts a grace period, then storage is refused."""

from datetime import date, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import literal, select, text

from shared.credits.amounts import MAX_STORAGE_PRICE
from shared.credits.balances import Policy
from shared.credits.errors import InsufficientCredits
from shared.credits.storage_billing.daily_charges import charge_storage, storage_is_refused
from shared.db.database import Database
from tests.shared.credits.calls import GIB, Calls

STORAGE_UNIT = (1 << 30) * 30 * 24 * 3600 * 1_000_000
"""Byte-microseconds that a price of storage is for: a GiB for 30 days."""
GRACE = timedelta(days=14)
_DAYS = [(date(2026, 1, 1) + timedelta(days=at)).isoformat() for at in range(60)]


def owe(calls: Calls, amount: int, *, grace: timedelta = GRACE, day: int = 0) -> int:
    """Store so much that a day costs this amount, and charge it; return how many days were charged."""
    calls.store(_DAYS[day], bytes_of_30_days=GIB, price=amount)
    return charge_storage(calls.database, grace=grace)


def is_refused(calls: Calls) -> bool:
    with calls.database.autocommit() as session:
        return bool(session.execute(select(storage_is_refused(literal(calls.organization_id)))).scalar_one())


def age_grace_period(calls: Calls, days: float) -> None:
    """Move the start of the grace period into the past."""
    calls.run(
        "UPDATE credit_balances SET storage_overdue_since = storage_overdue_since - make_interval(secs => :seconds),"
        " storage_refused_from = storage_refused_from - make_interval(secs => :seconds) WHERE organization_id = :id",
        id=calls.organization_id,
        seconds=days * 86400,
    )


def grace_of(calls: Calls) -> timedelta | None:
    balance = calls.balance
    if balance.storage_refused_from is None or balance.storage_overdue_since is None:
        return None
    return balance.storage_refused_from - balance.storage_overdue_since


def test_storage_that_can_be_paid_is_an_entry_and_spending(calls: Calls) -> None:
    calls.top_up(100)
    assert owe(calls, 40) == 1
    assert (calls.balance.balance, calls.balance.spent, grace_of(calls)) == (60, 40, None)
    assert calls.discrepancies() == []


def test_storage_takes_a_balance_below_zero_and_begins_the_grace(calls: Calls) -> None:
    owe(calls, 40)
    assert (calls.balance.balance, grace_of(calls)) == (-40, GRACE)
    assert not is_refused(calls)
    assert calls.discrepancies() == []


def test_organization_without_credits_holds_nothing(calls: Calls) -> None:
    calls.top_up(30)
    owe(calls, 40)
    with pytest.raises(InsufficientCredits):
        calls.hold(1)


def test_storage_is_refused_after_the_grace_period(calls: Calls) -> None:
    owe(calls, 40)
    age_grace_period(calls, 13.99)
    assert not is_refused(calls)
    age_grace_period(calls, 0.02)
    assert is_refused(calls)


def test_storage_without_grace_is_refused_at_once(calls: Calls) -> None:
    owe(calls, 1, grace=timedelta(0))
    assert is_refused(calls)


def test_top_up_covering_the_debt_ends_the_storage_refusal(calls: Calls) -> None:
    owe(calls, 40, grace=timedelta(0))
    calls.top_up(39)
    assert is_refused(calls)
    calls.top_up(1)
    assert not is_refused(calls)
    assert (calls.balance.storage_overdue_since, calls.balance.storage_refused_from) == (None, None)


def test_a_new_debt_has_a_new_grace(calls: Calls) -> None:
    owe(calls, 40)
    age_grace_period(calls, 20)
    calls.top_up(40)
    owe(calls, 40, day=1)
    assert not is_refused(calls)
    assert grace_of(calls) == GRACE


def test_an_overdraft_is_used_before_anything_is_owed(calls: Calls) -> None:
    calls.set_policy(Policy.ACTIVE, overdraft=40)
    owe(calls, 40)
    assert (calls.balance.balance, grace_of(calls)) == (-40, None)
    owe(calls, 1, day=1)
    assert grace_of(calls) == GRACE


def test_larger_overdraft_ends_the_storage_refusal_and_a_smaller_starts_none(calls: Calls) -> None:
    owe(calls, 40, grace=timedelta(0))
    calls.set_policy(Policy.ACTIVE, overdraft=39)
    assert is_refused(calls)
    calls.set_policy(Policy.ACTIVE, overdraft=40)
    assert not is_refused(calls)
    calls.set_policy(Policy.ACTIVE)
    assert not is_refused(calls)
    assert calls.discrepancies() == []


def test_call_above_its_hold_starts_no_storage_grace(calls: Calls) -> None:
    calls.top_up(10)
    calls.settle(*calls.dispatched(10), 50)
    assert (calls.balance.balance, grace_of(calls)) == (-40, None)
    owe(calls, 1, day=1)
    assert grace_of(calls) == GRACE


def test_days_that_cost_nothing_make_nothing_owed(calls: Calls) -> None:
    calls.top_up(10)
    calls.settle(*calls.dispatched(10), 50)
    assert owe(calls, 0) == 1
    assert grace_of(calls) is None


def test_a_grace_once_given_is_lengthened_but_never_shortened(calls: Calls) -> None:
    owe(calls, 1)
    owe(calls, 1, grace=timedelta(days=1), day=1)
    assert grace_of(calls) == GRACE
    owe(calls, 1, grace=timedelta(days=30), day=2)
    assert grace_of(calls) == timedelta(days=30)


def test_more_days_than_one_transaction_takes_are_charged_by_the_next_run(calls: Calls) -> None:
    for day in _DAYS:
        calls.store(day, bytes_of_30_days=GIB, price=1)
    charged = charge_storage(calls.database, grace=GRACE)
    assert 0 < charged < len(_DAYS)
    charge_storage(calls.database, grace=GRACE)
    assert calls.balance.balance == -len(_DAYS)
    assert calls.discrepancies() == []


def test_charge_beyond_the_exact_balance_range_is_skipped(calls: Calls, database: Database) -> None:
    calls.top_up(1)
    lowest = -4 * 10**18
    with database.transaction() as session:
        session.execute(text("SET LOCAL session_replication_role = replica"))
        for statement in (
            "UPDATE credit_balances SET posted = :lowest + 9 WHERE organization_id = :id",
            "UPDATE ledger_entries SET amount = :lowest + 9, balance_after = :lowest + 9 WHERE organization_id = :id",
        ):
            session.execute(text(statement), {"id": str(calls.organization_id), "lowest": lowest})
    owe(calls, 10)
    assert calls.balance.balance == lowest + 9
    owe(calls, 0, day=1)
    assert calls.discrepancies() == []
    calls.top_up(1)
    assert charge_storage(calls.database, grace=GRACE) == 2
    assert calls.balance.balance == lowest


@settings(max_examples=40, deadline=None)
@given(
    byte_microseconds=st.integers(0, 2**63 * 86_400_000_000),
    storage_price=st.integers(0, MAX_STORAGE_PRICE),
    remainder=st.integers(0, STORAGE_UNIT - 1),
)
def test_the_rounding_is_the_same_in_python_and_in_sql(
    database: Database, byte_microseconds: int, storage_price: int, remainder: int
) -> None:
    statement = text(
        "SELECT div(CAST(:time AS numeric) * :price + CAST(:rest AS numeric), credits_storage_unit()) AS cost,"
        " mod(CAST(:time AS numeric) * :price + CAST(:rest AS numeric), credits_storage_unit()) AS remainder"
    )
    with database.autocommit() as session:
        row = session.execute(
            statement, {"time": byte_microseconds, "price": storage_price, "rest": remainder}
        ).one()
    cost, rest = divmod(byte_microseconds * storage_price + remainder, STORAGE_UNIT)
    assert (int(row.cost), int(row.remainder)) == (cost, rest)
    assert cost < 2**63
