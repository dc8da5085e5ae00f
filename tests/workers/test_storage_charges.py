"""The worker's handlers of storage charges, with the configured price and grace period."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import text

from shared.credits.balances import get_balance
from shared.db.database import Database
from shared.messaging.queues import LEDGER
from tests.shared.files.metering.stored_months import DAY, Month
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.bound_worker import BoundWorker, bound_worker

GIB = 1 << 30


@pytest.fixture
def worker(database_url: str) -> Iterator[BoundWorker]:
    settings = make_settings(
        database_url=database_url,
        redis_url="redis://127.0.0.1:1/0",
        storage_price="2.5",
        storage_grace_days=3,
    )
    with bound_worker(settings, [LEDGER]) as worker:
        yield worker


def test_a_month_is_charged_at_the_price_of_the_settings(worker: BoundWorker, database: Database) -> None:
    payer = IdentityFactory(database, make_settings()).organization().id
    starts_at = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - 31 * DAY
    with database.transaction() as session:
        session.execute(text("INSERT INTO storage_mark (id, measured_to) VALUES (1, :at)"), {"at": starts_at})
    Month(database, [payer], starts_at=starts_at).upload(starts_at, GIB, deadline=starts_at + 30 * DAY)
    worker.run("files.accrue_storage")
    worker.run("files.prove_storage")
    with database.transaction() as session:
        balance = get_balance(session, payer)
    assert balance.balance == -2_500_000
    assert balance.storage_overdue_since is not None
    assert balance.storage_refused_from == balance.storage_overdue_since + timedelta(days=3)
