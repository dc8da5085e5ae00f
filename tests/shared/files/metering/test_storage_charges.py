"""Storage is charged to the µcr for each byte and microsecond, once, for any moments and number of runs."""

import contextlib
import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared import failpoints
from shared.credits.balances import get_balance
from shared.credits.reconciliation import reconcile
from shared.db.database import Database
from shared.files.metering import storage_check
from shared.files.metering.storage_charges import measure_storage
from shared.files.metering.storage_check import StorageProof, count_stored, find_storage_discrepancies
from shared.files.metering.storage_prices import StoragePrice
from shared.observability.telemetry import LEDGER_DISCREPANCIES
from shared.runtime.batches import budget
from tests.shared.files.conftest import Shelf
from tests.shared.files.metering.stored_months import (
    DAY,
    MICROSECOND,
    Kept,
    Month,
    days_between,
    empty_month,
    midnight_before,
)
from tests.support.data.identity import IdentityFactory, make_settings
from tests.support.processes.simulated_deaths import Died

POINTS = (
    "storage.folded",
    "storage.before_commit",
    "storage.day_measured",
    "storage.measured",
    "storage.charged",
)
GIB = 1024**3
PRICE = 25_000
FREE = StoragePrice(amount=0)
Happening = tuple[datetime, Callable[[datetime], object]]


@pytest.fixture
def payers(database: Database) -> list[UUID]:
    factory = IdentityFactory(database, make_settings())
    return [factory.organization().id for _ in range(4)]


@pytest.fixture
def month(database: Database, payers: list[UUID]) -> Month:
    """An empty month that began 40 days ago, and nothing of the month before it."""
    return empty_month(database, payers, midnight_before(40))


@pytest.fixture
def first(month: Month) -> datetime:
    """The month's first day: the accrual has begun while nothing was stored."""
    month.mark()
    return month.starts_at


def _require_exact(month: Month, until: datetime) -> None:
    """Fail unless ledger, balances and proofs equal the month's own calculation."""
    days = days_between(month.starts_at, until)
    charged = month.charged_costs()
    with month.database.transaction() as session:
        for payer_id in month.payers:
            expected = {day: cost for day, cost in month.expected_costs(payer_id, days).items() if cost}
            assert charged.get(payer_id, {}) == expected
            assert get_balance(session, payer_id).balance == -sum(expected.values())
            assert reconcile(session, payer_id) == []
    assert find_storage_discrepancies(month.database) == []


def _cost(month: Month, days: int = 1) -> list[int]:
    """Return the charges of the first payer, day by day from the month's first."""
    charged = month.charged_costs().get(month.payers[0], {})
    return [charged.get((month.starts_at + at * DAY).date(), 0) for at in range(days)]


def _die_at(monkeypatch: pytest.MonkeyPatch, point: str) -> None:
    reached: list[str] = []

    def reach(name: str) -> None:
        if name == point and not reached:
            reached.append(name)
            raise Died(name)

    monkeypatch.setattr(failpoints, "hit", reach)


class Life:
    """Random uploads, replaces, renewals, deletes and sweeps, in the order of their moments."""

    def __init__(self, month: Month, rng: random.Random) -> None:
        self.month = month
        self.rng = rng

    def moments(self, count: int, first_day: int, last_day: int) -> list[datetime]:
        """Random moments in the first half of a minute, or within a microsecond of midnight."""
        found = []
        for _ in range(count):
            day = self.month.starts_at + self.rng.randrange(first_day, last_day) * DAY
            if self.rng.random() < 0.15:
                found.append(day + self.rng.choice((-1, 0, 1)) * MICROSECOND)
            else:
                minutes = timedelta(minutes=self.rng.randrange(1, 24 * 60 - 1))
                found.append(day + minutes + timedelta(microseconds=self.rng.randrange(30_000_000)))
        return sorted(found)

    def act(self, at: datetime) -> None:
        alive = [kept for kept in self.month.files if kept.is_alive(at)]
        action = self.rng.choices(("upload", "replace", "renew", "delete", "sweep"), (45, 20, 12, 13, 10))[0]
        if action == "sweep":
            self.month.sweep(at)
        elif action == "upload" or not alive:
            self.month.upload(
                at, self.size(), payer_id=self.rng.choice(self.month.payers), deadline=self.deadline(at)
            )
        elif action == "replace":
            self.month.replace(self.rng.choice(alive), at, self.size())
        elif action == "delete":
            self.month.delete(self.rng.choice(alive), at)
        else:
            self.renew(self.rng.choice(alive), at)

    def size(self) -> int:
        return self.rng.choice((0, 1, self.rng.randrange(10**6), self.rng.randrange(10**9), 5 * GIB))

    def deadline(self, at: datetime) -> datetime | None:
        if self.rng.random() < 0.4:
            return None
        later = at + timedelta(microseconds=self.rng.randrange(1, 12 * 86_400_000_000))
        if self.rng.random() < 0.2:
            later = later.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
        # Never in the moments in which this month lets the beat run.
        return later.replace(second=later.second % 30)

    def renew(self, kept: Kept, at: datetime) -> None:
        if kept.deadline is not None:
            later = self.deadline(at)
            self.month.renew(kept, None if later is None else max(later, kept.deadline))


@pytest.mark.parametrize("seed", range(4))
def test_random_month_costs_equal_an_independent_calculation(
    month: Month, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """The accrual runs at random moments, stops for a day and for ten, crashes now and then, and the price changes."""
    rng = random.Random(seed)
    life = Life(month, rng)
    for at in life.moments(15, -6, 0):
        life.act(at)
    running = [*range(7), *range(8, 15), *range(25, 31)]
    beats = [
        month.starts_at + rng.choice(running) * DAY + timedelta(minutes=rng.randrange(1, 1430), seconds=45)
        for _ in range(25)
    ]
    beats.append(month.starts_at + timedelta(seconds=45))
    happenings: list[Happening] = [(at, life.act) for at in life.moments(160, 0, 31)]

    def beat(at: datetime) -> None:
        if rng.random() < 0.3:
            _die_at(monkeypatch, rng.choice(POINTS))
            price = rng.randrange(200_000)
            with contextlib.suppress(Died):
                month.accrue(at, price=price)
            monkeypatch.undo()
            month.accrue(at, price=price)
        else:
            month.accrue(at, price=rng.randrange(200_000))

    happenings += [(at, beat) for at in beats]
    for at, happen in sorted(happenings, key=lambda happening: happening[0]):
        happen(at)
    end = month.starts_at + 31 * DAY + timedelta(seconds=45)
    month.accrue(end, price=PRICE)
    _require_exact(month, end)


def test_many_runs_in_a_day_measure_the_same_as_one(month: Month, first: datetime) -> None:
    life = Life(month, random.Random(7))
    happenings: list[Happening] = [(at, life.act) for at in life.moments(40, 0, 1) if at >= first]
    happenings += [(first + timedelta(hours=hour, seconds=45), month.accrue) for hour in range(0, 24, 3)]
    for at, happen in sorted(happenings, key=lambda happening: happening[0]):
        happen(at)
    month.accrue(first + DAY + timedelta(seconds=45), price=10**9)
    _require_exact(month, first + DAY)


def test_a_gib_for_thirty_days_costs_its_price(month: Month, first: datetime) -> None:
    month.upload(first, GIB, payer_id=month.payers[0])
    month.accrue(first + 30 * DAY, price=PRICE)
    assert sum(_cost(month, 30)) == PRICE


def test_fractions_of_a_unit_are_carried_over(month: Month, first: datetime) -> None:
    """A thirtieth of a GiB at 10 µcr is a ninetieth of a µcr a day."""
    month.upload(first, GIB // 3, payer_id=month.payers[0])
    month.accrue(first + 30 * DAY, price=10)
    assert (_cost(month, 30).count(0), sum(_cost(month, 30))) == (27, 3)


def test_a_version_is_charged_from_its_commit_to_the_deadline_itself(month: Month, first: datetime) -> None:
    noon = first + DAY / 2
    month.upload(noon, 30 * GIB, payer_id=month.payers[0], deadline=first + DAY + DAY / 4)
    month.accrue(first + 3 * DAY, price=1000)
    assert _cost(month, 3) == [500, 250, 0]
    month.sweep(first + 3 * DAY)
    month.accrue(first + 4 * DAY, price=1000)
    _require_exact(month, first + 4 * DAY)


def test_a_renewal_moves_the_end(month: Month, first: datetime) -> None:
    kept = month.upload(first, 30 * GIB, payer_id=month.payers[0], deadline=first + DAY / 2)
    month.accrue(first + DAY / 4, price=1000)
    month.renew(kept, first + 2 * DAY)
    month.accrue(first + 3 * DAY, price=1000)
    assert _cost(month, 3) == [1000, 1000, 0]


def test_a_delete_counts_to_its_transaction(month: Month, first: datetime) -> None:
    kept = month.upload(first, 30 * GIB, payer_id=month.payers[0])
    month.delete(kept, first + DAY / 10)
    month.accrue(first + 2 * DAY, price=1000)
    assert _cost(month, 2) == [100, 0]


def test_earlier_versions_are_charged_until_their_file_ends(month: Month, first: datetime) -> None:
    kept = month.upload(first, 30 * GIB, payer_id=month.payers[0])
    month.replace(kept, first + DAY, 60 * GIB)
    month.delete(kept, first + 2 * DAY)
    month.accrue(first + 3 * DAY, price=1000)
    assert _cost(month, 3) == [1000, 3000, 0]


def test_a_day_ends_at_midnight_to_the_microsecond(month: Month, first: datetime) -> None:
    big = 10**6 * GIB * 30
    price = 86_400
    month.upload(
        first + DAY - MICROSECOND, big, payer_id=month.payers[0], deadline=first + DAY + 2 * MICROSECOND
    )
    month.accrue(first + 2 * DAY, price=price)
    assert _cost(month, 2) == [1, 2]


def test_a_version_that_its_files_end_came_before_was_never_stored(month: Month, first: datetime) -> None:
    """A delete began its transaction just before midnight and waited for a replace that committed just after."""
    kept = month.upload(first, 30 * GIB, payer_id=month.payers[0])
    month.replace(kept, first + DAY + MICROSECOND, 90 * GIB)
    month.delete(kept, first + DAY - MICROSECOND)
    month.accrue(first + 2 * DAY, price=1000)
    assert _cost(month, 2) == [999, 0]
    _require_exact(month, first + 2 * DAY)


def test_content_without_bytes_costs_nothing(month: Month, first: datetime) -> None:
    month.upload(first, 0, payer_id=month.payers[0])
    month.accrue(first + 3 * DAY, price=10**10)
    assert _cost(month, 3) == [0, 0, 0]
    _require_exact(month, first + 3 * DAY)


def test_the_payer_is_charged_and_not_the_owners_organization(month: Month, first: datetime) -> None:
    kept = month.upload(first, 30 * GIB, payer_id=month.payers[1])
    with month.database.transaction() as session:
        values = {"owner": str(month.payers[0]), "id": str(kept.id)}
        session.execute(text("UPDATE files SET organization_id = :owner WHERE id = :id"), values)
    month.accrue(first + DAY, price=1000)
    assert set(month.charged_costs()) & set(month.payers) == {month.payers[1]}


def test_a_price_holds_for_the_days_that_end_under_it(month: Month, first: datetime) -> None:
    month.upload(first, 30 * GIB, payer_id=month.payers[0])
    month.accrue(first + DAY, price=1000)
    month.accrue(first + 2 * DAY - MICROSECOND * 10**7, price=5000)
    month.accrue(first + 3 * DAY - MICROSECOND * 10**7, price=200)
    month.accrue(first + 3 * DAY, price=7)
    assert _cost(month, 3) == [1000, 5000, 200]


def test_running_again_charges_nothing_twice(month: Month, first: datetime) -> None:
    month.upload(first, GIB, payer_id=month.payers[0])
    assert month.accrue(first + 2 * DAY, price=10**6) == 2
    assert month.accrue(first + 2 * DAY, price=10**6) == 0
    _require_exact(month, first + 2 * DAY)


def test_day_ends_only_after_its_last_possible_transaction(month: Month, database: Database) -> None:
    """With its own slack the accrual is minutes behind: what has just been committed is measured later."""
    month.upload(datetime.now(UTC) - timedelta(minutes=11), 100, payer_id=month.payers[0])
    measure_storage(database, price=FREE)
    month.upload(datetime.now(UTC), 10, payer_id=month.payers[0])
    measure_storage(database, price=FREE)
    with database.transaction() as session:
        stored = session.execute(text("SELECT sum(stored_bytes) FROM storage_days WHERE price IS NULL"))
        assert stored.scalar() == 100
        behind = session.execute(text("SELECT now() - measured_to FROM storage_mark")).scalar()
    assert behind is not None
    assert timedelta(minutes=10) < behind < timedelta(minutes=11)


def test_many_that_accrue_at_once_charge_each_day_once(month: Month, first: datetime) -> None:
    for payer_id in month.payers:
        for _ in range(3):
            month.upload(first + DAY / 3, 7 * GIB, payer_id=payer_id)
    barrier = threading.Barrier(4)
    failures: list[BaseException] = []
    month.prices = dict.fromkeys(days_between(first, first + 12 * DAY), StoragePrice(amount=PRICE))

    def accrue() -> None:
        barrier.wait()
        try:
            for _ in range(3):
                month.accrue(first + 12 * DAY, price=PRICE)
        except BaseException as error:  # noqa: BLE001 (told to the test)
            failures.append(error)

    threads = [threading.Thread(target=accrue) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    month.accrue(first + 12 * DAY, price=PRICE)
    _require_exact(month, first + 12 * DAY)


@pytest.mark.parametrize("point", POINTS)
def test_a_death_between_two_steps_charges_each_day_once(
    month: Month, first: datetime, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    month.upload(first, 12_345_678_901, payer_id=month.payers[0])
    month.upload(first + DAY, 98_765_432, payer_id=month.payers[1])
    _die_at(monkeypatch, point)
    with pytest.raises(Died):
        month.accrue(first + 4 * DAY, price=PRICE)
    monkeypatch.undo()
    month.accrue(first + 4 * DAY, price=PRICE)
    _require_exact(month, first + 4 * DAY)


@pytest.mark.parametrize("shelf", ["local"], indirect=True)
def test_writes_of_the_service_are_measured(month: Month, shelf: Shelf) -> None:
    """Uploads, a replace, a delete and an expiry as the service makes them, not as the simulated month does."""
    kept = shelf.upload(b"12345")
    measure_storage(month.database, price=FREE, slack=timedelta(0))
    deleted, expired = shelf.upload(b"deleted"), shelf.upload(b"expired")
    shelf.replace(kept, b"1234567")
    measure_storage(month.database, price=FREE, slack=timedelta(0))
    shelf.delete(deleted)
    shelf.sql("UPDATE files SET retention_expires_at = now() WHERE id = :id", id=expired.version.file_id)
    measure_storage(month.database, price=FREE, slack=timedelta(0))
    shelf.work()
    measure_storage(month.database, price=FREE, slack=timedelta(0))
    assert find_storage_discrepancies(month.database) == []
    with month.database.transaction() as session:
        stored = session.execute(text("SELECT stored_bytes FROM storage_days WHERE price IS NULL"))
        assert stored.scalars().all() == [12]


def test_proof_finds_unmeasured_versions_and_a_count_corrects_them(month: Month, first: datetime) -> None:
    """A version appears before the mark, as no transaction may; the meter has not seen it."""
    month.accrue(first + 2 * DAY + DAY / 2, price=1000)
    month.upload(first + 2 * DAY, 30 * GIB, payer_id=month.payers[0])
    assert StorageProof().step(month.database) == 1
    assert LEDGER_DISCREPANCIES.labels("storage_measured")._value.get() == 1
    (found,) = find_storage_discrepancies(month.database)
    expected = (month.payers[0], 30 * GIB, 0)
    assert (found.organization_id, found.expected_bytes, found.found_bytes) == expected
    with month.database.transaction() as session:
        count_stored(session)
    assert find_storage_discrepancies(month.database) == []
    month.accrue(first + 4 * DAY, price=1000)
    _require_exact(month, first + 4 * DAY)


def test_payer_without_organization_does_not_block_other_charges(month: Month, first: datetime) -> None:
    month.upload(first, GIB, payer_id=uuid4())
    month.upload(first, 30 * GIB, payer_id=month.payers[0])
    assert month.accrue(first + DAY, price=1000) == 1
    assert _cost(month) == [1000]


def test_truncated_proof_continues_where_it_ended(
    month: Month, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_check, "BATCH_SIZE", 2)
    for _ in range(5):
        month.upload(first, GIB, payer_id=month.payers[0])
    month.accrue(first + DAY / 2)
    month.upload(first + DAY / 4, 7, payer_id=month.payers[1])
    proof, runs = StorageProof(), list[tuple[int, bool]]()
    while not runs or runs[-1][1]:
        with budget(0) as given:
            runs.append((proof.step(month.database), given.is_truncated))
        month.accrue(first + DAY * 3 / 4)
    assert runs == [(0, True), (0, True), (0, True), (1, False)]
    assert StorageProof().step(month.database) == 1


def test_proof_bounds_the_versions_of_a_batch_for_any_file(
    month: Month, first: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_check, "BATCH_VERSIONS", 3)
    for versions in (1, 7, 3, 1):
        file = month.upload(first, GIB, payer_id=month.payers[0])
        for byte_size in range(2, versions + 1):
            month.replace(file, first + DAY / 4, byte_size)
    month.accrue(first + DAY / 2)
    proof, runs = StorageProof(), list[bool]()
    while not runs or runs[-1]:
        with budget(0) as given:
            assert proof.step(month.database) == 0
        runs.append(given.is_truncated)
    assert runs == [True] * 4 + [False]
