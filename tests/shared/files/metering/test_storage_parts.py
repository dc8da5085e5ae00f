"""Storage costs by purpose, owner and distribution: the parts are measured, and sum to the charge."""

import random
from collections import defaultdict
from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from itertools import combinations
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared.credits.reconciliation import reconcile
from shared.credits.storage_billing.storage_reports import (
    MICROSECONDS_OF_DAY,
    StorageCriteria,
    StorageDimension,
    StorageGroup,
    storage_usage,
)
from shared.credits.usage.usage_reports import Window
from shared.db.database import Database
from shared.errors import ValidationFailed
from tests.shared.files.conftest import Shelf
from tests.shared.files.metering.stored_months import (
    DAY,
    Month,
    Part,
    days_between,
    empty_month,
    midnight_before,
)
from tests.support.data.identity import IdentityFactory, make_settings

GIB = 1 << 30
PURPOSE, OWNER, DISTRIBUTION = StorageDimension
PRICE = 777_777


@pytest.fixture
def payer(database: Database) -> UUID:
    return IdentityFactory(database, make_settings()).organization().id


@pytest.fixture
def month(database: Database, payer: UUID) -> Month:
    """An empty month that began 20 days ago."""
    month = empty_month(database, [payer], midnight_before(20))
    month.mark()
    return month


def groups(month: Month, *group_by: StorageDimension) -> tuple[StorageGroup, ...]:
    """Return the groups of a report, after comparing their sums with the report's and the ledger's."""
    (payer,) = month.payers
    with month.database.transaction() as session:
        report = storage_usage(session, payer, StorageCriteria(group_by=group_by))
        assert reconcile(session, payer) == []
    assert sum(at.cost for at in report.groups) == report.cost
    assert report.cost == sum(month.charged_costs().get(payer, {}).values())
    assert sum(at.byte_microseconds for at in report.groups) == report.byte_microseconds
    assert sum(at.stored_bytes for at in report.groups) == report.stored_bytes
    return report.groups


def live(month: Month, rng: random.Random, parts: list[Part]) -> None:
    """Store, replace, delete and expire files of each part, while the sweep runs at random moments."""
    moments = sorted(month.starts_at + rng.random() * 18 * DAY for _ in range(90))
    for at in moments:
        alive = [kept for kept in month.files if kept.is_alive(at)]
        act = rng.random()
        if act < 0.5 or not alive:
            ends_at = at + rng.random() * 9 * DAY if rng.random() < 0.4 else None
            month.upload(at, rng.randrange(10**10), part=rng.choice(parts), deadline=ends_at)
        elif act < 0.65:
            month.replace(rng.choice(alive), at, rng.randrange(10**9))
        elif act < 0.8:
            month.delete(rng.choice(alive), at)
        else:
            month.accrue(at, price=PRICE)
    month.accrue(month.starts_at + 18 * DAY + timedelta(hours=3), price=PRICE)


@pytest.mark.parametrize("seed", range(3))
def test_groups_of_any_dimensions_sum_to_the_charge(month: Month, seed: int) -> None:
    rng = random.Random(seed)
    owners, places = [uuid4(), uuid4()], [uuid4(), None]
    parts = [
        Part(owner_id=owner, purpose=purpose, distribution_id=place)
        for owner in owners
        for place in places
        for purpose in ("AgentArtifact", "MessagingMedia")
    ]
    live(month, rng, parts)
    (payer,) = month.payers
    days = days_between(month.starts_at, month.starts_at + 18 * DAY + DAY / 8)
    costs = month.expected_costs(payer, days)
    finest = {tuple(at.keys.values()): at for at in groups(month, PURPOSE, OWNER, DISTRIBUTION)}
    for part in parts:
        place = str(part.distribution_id) if part.distribution_id else None
        found = finest[part.purpose, str(part.owner_id), place]
        exact = sum(
            (
                Fraction(
                    costs[day] * month.expected_time(payer, day, part), month.expected_time(payer, day) or 1
                )
                for day in days
            ),
            Fraction(0),
        )
        assert abs(found.cost - exact) <= len(days)
    for size in (1, 2):
        for chosen in combinations(StorageDimension, size):
            sums: dict[tuple[str | None, ...], int] = defaultdict(int)
            for at in finest.values():
                sums[tuple(at.keys[dimension] for dimension in chosen)] += at.cost
            assert {tuple(at.keys.values()): at.cost for at in groups(month, *chosen)} == sums


def test_groups_are_sorted_by_cost_and_keep_past_costs(month: Month) -> None:
    small, large = Part(owner_id=uuid4()), Part(owner_id=uuid4(), purpose="MessagingMedia")
    month.upload(month.starts_at, 30 * GIB, part=small)
    month.upload(month.starts_at, 60 * GIB, part=large, deadline=month.starts_at + 2 * DAY)
    month.accrue(month.starts_at + 3 * DAY, price=1000)
    assert [(at.keys, at.cost, at.stored_bytes, at.byte_days // GIB) for at in groups(month, OWNER)] == [
        ({OWNER: str(large.owner_id)}, 4000, 0, 120),
        ({OWNER: str(small.owner_id)}, 3000, 30 * GIB, 90),
    ]


def test_a_cost_that_does_not_divide_leaves_no_unit_over(month: Month) -> None:
    for _ in range(3):
        month.upload(month.starts_at, 10 * GIB, part=Part(owner_id=uuid4()))
    month.accrue(month.starts_at + DAY, price=1000)
    assert sorted(at.cost for at in groups(month, OWNER)) == [333, 333, 334]


def test_days_before_parts_were_measured_are_a_group_without_values(month: Month) -> None:
    """The previous release measures alone, then this one; the day of the update is counted completely."""
    part = Part(owner_id=uuid4())
    month.upload(month.starts_at, 30 * GIB, part=part)
    month.accrue(month.starts_at + 2 * DAY + DAY / 2, price=1000)
    with month.database.transaction() as session:
        session.execute(text("DELETE FROM storage_parts"))
        session.execute(text("UPDATE storage_mark SET parts_to = NULL"))
    month.accrue(month.starts_at + 4 * DAY, price=1000)
    known, unknown = sorted(groups(month, OWNER, PURPOSE), key=lambda at: at.keys[OWNER] or "~")
    assert (known.keys[OWNER], known.cost, known.stored_bytes) == (str(part.owner_id), 2000, 30 * GIB)
    assert (unknown.keys, unknown.cost) == ({OWNER: None, PURPOSE: None}, 2000)
    assert unknown.byte_microseconds == 2 * 30 * GIB * MICROSECONDS_OF_DAY


def test_parts_unmeasured_by_the_previous_release_are_counted(month: Month) -> None:
    """The previous release moves the mark and writes no parts: the present day is counted again."""
    part = Part(owner_id=uuid4())
    month.upload(month.starts_at, 30 * GIB, part=part)
    month.accrue(month.starts_at + DAY / 4, price=1000)
    with month.database.transaction() as session:
        session.execute(text("UPDATE storage_mark SET measured_to = measured_to + interval '1 hour'"))
        session.execute(text("DELETE FROM storage_parts"))
    month.accrue(month.starts_at + 2 * DAY, price=1000)
    assert [(at.keys[OWNER], at.cost) for at in groups(month, OWNER)] == [(str(part.owner_id), 2000)]


def test_a_report_has_a_window_or_a_month(month: Month) -> None:
    criteria = StorageCriteria(window=Window.DAY, month=month.starts_at.date().replace(day=1))
    with month.database.transaction() as session, pytest.raises(ValidationFailed):
        storage_usage(session, month.payers[0], criteria)


@pytest.mark.parametrize("shelf", ["local"], indirect=True)
def test_an_upload_for_a_distribution_counts_under_it(month: Month, shelf: Shelf) -> None:
    distribution_id = uuid4()
    direct = shelf.upload(b"direct")
    shelf.caller = replace(shelf.caller, distribution_id=distribution_id)
    routed = shelf.upload(b"routed")
    found = {row.id: row.distribution_id for row in shelf.sql("SELECT id, distribution_id FROM files")}
    assert (found[direct.version.file_id], found[routed.version.file_id]) == (None, distribution_id)
