"""A price is for 30 days, or by a setting for the calendar month, in UTC; a change applies from that day on."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from shared.credits.reconciliation import reconcile
from shared.credits.storage_billing.storage_reports import StorageCriteria, storage_usage
from shared.db.database import Database
from shared.files.metering.storage_prices import StorageMonth
from tests.shared.files.metering.stored_months import DAY, MICROSECOND, Month, days_between, empty_month
from tests.support.data.identity import IdentityFactory, make_settings

GIB = 1 << 30
PRICE = 28_293_031
"""A prime of that size: no part of a month costs a whole number by chance."""
CALENDAR, THIRTY_DAYS = StorageMonth.CALENDAR, StorageMonth.THIRTY_DAYS


@pytest.fixture
def payer(database: Database) -> UUID:
    return IdentityFactory(database, make_settings()).organization().id


def begin(database: Database, payer: UUID, starts_at: datetime) -> Month:
    month = empty_month(database, [payer], starts_at)
    month.mark()
    return month


def first_of(year: int, month: int) -> datetime:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)


def cost_of(month: Month, payer: UUID, year: int, number: int) -> int:
    """Return the cost of a calendar month in the report, after comparing it with the ledger's days."""
    first, beyond = first_of(year, number), first_of(year, number + 1)
    with month.database.transaction() as session:
        report = storage_usage(session, payer, StorageCriteria(month=first.date()))
        assert reconcile(session, payer) == []
    charged = month.charged_costs().get(payer, {})
    assert report.cost == sum(cost for day, cost in charged.items() if first.date() <= day < beyond.date())
    assert {at.day for at in report.days} <= set(days_between(first, beyond))
    return report.cost


@pytest.mark.parametrize(("year", "number"), [(2024, 2), (2025, 2), (2025, 4), (2025, 12)])
def test_gib_for_a_calendar_month_costs_the_price_in_every_month(
    database: Database, payer: UUID, year: int, number: int
) -> None:
    first, beyond = first_of(year, number), first_of(year, number + 1)
    month = begin(database, payer, first)
    month.upload(first, GIB, payer_id=payer, deadline=beyond)
    month.accrue(beyond + DAY, price=PRICE, month=CALENDAR)
    assert cost_of(month, payer, year, number) == PRICE
    assert cost_of(month, payer, year, number + 1 if number < 12 else 1) == 0


def test_thirty_days_stay_the_rule_and_a_leap_february_costs_its_part(
    database: Database, payer: UUID
) -> None:
    month = begin(database, payer, first_of(2024, 2))
    month.upload(first_of(2024, 2), GIB, payer_id=payer)
    month.accrue(first_of(2024, 3) + DAY, price=30_000_000)
    assert cost_of(month, payer, 2024, 2) == 29_000_000


def test_a_year_of_calendar_months_costs_twelve_prices_and_carries_between_them(
    database: Database, payer: UUID
) -> None:
    month = begin(database, payer, first_of(2024, 1))
    month.upload(first_of(2024, 1), GIB, payer_id=payer)
    for number in range(1, 13):
        month.accrue(first_of(2024, number + 1), price=PRICE, month=CALENDAR)
    month.accrue(first_of(2025, 1) + DAY / 2, price=PRICE, month=CALENDAR)
    assert [cost_of(month, payer, 2024, number) for number in range(1, 13)] == [PRICE] * 12


def test_odd_amounts_over_month_ends_cost_the_exact_sum_rounded_down(database: Database, payer: UUID) -> None:
    month = begin(database, payer, first_of(2024, 1))
    for size, hours in ((12_345_678_901, 5), (7, 700), (987_654_321, 1201)):
        at = first_of(2024, 1) + timedelta(hours=hours) + 17 * MICROSECOND
        month.upload(at, size, payer_id=payer, deadline=first_of(2024, 4) + timedelta(hours=hours))
    for number in range(1, 5):
        month.accrue(first_of(2024, number + 1), price=PRICE, month=CALENDAR)
    expected = month.expected_costs(payer, days_between(first_of(2024, 1), first_of(2024, 5)))
    assert month.charged_costs()[payer] == {day: cost for day, cost in expected.items() if cost}
    assert sum(cost_of(month, payer, 2024, number) for number in range(1, 5)) == sum(expected.values())


@pytest.mark.parametrize(("before", "after"), [(THIRTY_DAYS, CALENDAR), (CALENDAR, THIRTY_DAYS)])
def test_changed_setting_applies_to_days_that_end_later(
    database: Database, payer: UUID, before: StorageMonth, after: StorageMonth
) -> None:
    first = first_of(2025, 2)
    month = begin(database, payer, first)
    month.upload(first, GIB, payer_id=payer, deadline=first + 28 * DAY)
    month.accrue(first + 14 * DAY + DAY / 2, price=84_000_000, month=before)
    month.accrue(first + 14 * DAY + DAY * 3 / 4, price=84_000_000, month=after)
    month.accrue(first + 29 * DAY, price=84_000_000, month=after)
    by_day = {THIRTY_DAYS: 2_800_000, CALENDAR: 3_000_000}
    assert cost_of(month, payer, 2025, 2) == 14 * by_day[before] + 14 * by_day[after]
    with database.transaction() as session:
        report = storage_usage(session, payer, StorageCriteria(month=first.date()))
    lengths = {THIRTY_DAYS: 30, CALENDAR: 28}
    assert [at.price_days for at in reversed(report.days)] == [lengths[before]] * 14 + [lengths[after]] * 14
