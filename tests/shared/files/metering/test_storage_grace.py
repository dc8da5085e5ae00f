"""Fourteen days of grace, by a clock that the test moves: uploads, daily charges, refusal, a top-up."""

from datetime import timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from deploy.embedded.postgres import EmbeddedPostgres
from shared.credits.balances import Balance, get_balance
from shared.credits.errors import StorageUnpaid
from shared.credits.ledger import top_up
from shared.credits.reconciliation import reconcile
from shared.db.database import Database
from shared.files.metering.storage_charges import SLACK, accrue_storage
from shared.files.metering.storage_check import find_storage_discrepancies
from shared.files.metering.storage_prices import StoragePrice
from shared.identity.access.authorization import OPERATOR
from tests.shared.files.conftest import Shelf
from tests.support.data.moved_clock import MovedClock

GIB = 1 << 30
DAY = timedelta(days=1)
MOMENT = timedelta(seconds=30)


@pytest.fixture(scope="module")
def clock(postgres_server: EmbeddedPostgres, database: Database) -> MovedClock:
    """The clock of this module's database, from the day after this one on, a while after midnight."""
    clock = MovedClock(postgres_server, database)
    clock.move_to(clock.now.replace(hour=0, minute=0, second=0, microsecond=0) + DAY + 3 * SLACK)
    return clock


def accrue(database: Database, *, price: int = 30_000_000, grace_days: int = 14) -> None:
    """Run the sweep as its schedule does."""
    accrue_storage(database, price=StoragePrice(amount=price), grace=timedelta(days=grace_days))


def balance_of(shelf: Shelf) -> Balance:
    with shelf.database.autocommit() as session:
        return get_balance(session, payer(shelf))


def payer(shelf: Shelf) -> UUID:
    assert shelf.caller.payer_id is not None
    return shelf.caller.payer_id


def pay(shelf: Shelf, amount: int, reference: str) -> None:
    with shelf.database.transaction() as session:
        top_up(session, organization_id=payer(shelf), amount=amount, reference=reference, actor=OPERATOR)


def store_gibibytes(shelf: Shelf, count: int) -> None:
    """Set the size of the shelf's first file; its bytes are not read here."""
    shelf.upload(b"large")
    shelf.sql("UPDATE file_versions SET byte_size = :size", size=count * GIB)


@pytest.mark.parametrize("shelf", ["local"], indirect=True)
def test_debtor_stores_for_fourteen_days_and_then_nothing_until_payment(
    clock: MovedClock, shelf: Shelf
) -> None:
    database = shelf.database
    accrue(database)
    store_gibibytes(shelf, 1)
    pay(shelf, 2_500_000, "start")
    for day in range(3):
        clock.move(DAY)
        accrue(database)
        shelf.upload(f"paid {day}".encode())
    since = balance_of(shelf).storage_overdue_since
    assert since is not None
    assert balance_of(shelf).storage_refused_from == since + 14 * DAY

    for day in range(13):
        clock.move(DAY)
        accrue(database)
        shelf.upload(f"owed {day}".encode())
    clock.move_to(since + 14 * DAY - MOMENT)
    shelf.upload(b"the last of the grace")
    clock.move_to(since + 14 * DAY)
    with pytest.raises(StorageUnpaid):
        shelf.upload(b"one too many")

    pay(shelf, -balance_of(shelf).balance - 1, "too little")
    with pytest.raises(StorageUnpaid):
        shelf.upload(b"still unpaid")
    pay(shelf, 1, "the rest")
    assert balance_of(shelf).storage_overdue_since is None
    shelf.upload(b"paid again")
    clock.move(DAY)
    accrue(database)
    renewed = balance_of(shelf)
    assert renewed.storage_overdue_since is not None
    assert renewed.storage_refused_from == renewed.storage_overdue_since + 14 * DAY

    assert find_storage_discrepancies(database) == []
    with database.transaction() as session:
        assert reconcile(session, payer(shelf)) == []
        counts = session.execute(
            text(
                "SELECT count(*), count(DISTINCT day), count(charged_at) FROM storage_days WHERE price IS NOT NULL"
            )
        ).one()
    assert len(set(counts)) == 1


@pytest.mark.parametrize("shelf", ["local"], indirect=True)
def test_days_missed_during_price_changes_are_charged_once_at_their_price(
    clock: MovedClock, shelf: Shelf
) -> None:
    """The sweeps stood still for a week; the price had changed before, and changes again with their return."""
    database = shelf.database
    accrue(database, price=1_000_000)
    store_gibibytes(shelf, 30)
    midnight = clock.now.replace(hour=0, minute=0, second=0, microsecond=0)
    clock.move(DAY)
    accrue(database, price=1_000_000)
    accrue(database, price=2_000_000)
    clock.move(7 * DAY)
    for _ in range(2):
        accrue(database, price=5_000_000)
    clock.move(DAY)
    accrue(database, price=5_000_000)
    with database.autocommit() as session:
        rows = session.execute(
            text(
                "SELECT day, price, -amount AS cost FROM storage_days d LEFT JOIN ledger_entries e"
                " ON e.organization_id = d.organization_id AND kind = 'storage' AND reference = day::text"
                " WHERE d.organization_id = :id AND day > :first AND price IS NOT NULL ORDER BY day"
            ),
            {"id": str(payer(shelf)), "first": midnight.date()},
        ).all()
        kept = session.execute(text("SELECT price FROM storage_prices")).scalars().all()
    expected = [2_000_000] * 7 + [5_000_000]
    assert [row.price for row in rows] == expected
    assert [row.cost for row in rows] == expected
    assert kept == [5_000_000]
    with database.transaction() as session:
        assert reconcile(session, payer(shelf)) == []
