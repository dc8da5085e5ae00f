"""Waiting rows are claimed in turn: no tenant's rows, however many, come before the first row of another."""

from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from shared import failpoints
from shared.db.database import Database, Session
from shared.fairness.admission import ANONYMOUS, UNFAIR
from shared.fairness.fair_queueing import REMEMBERED_TENANTS, RoundRobin, next_round_robin
from shared.ids import new_id
from tests.support.data.query_plans import explain

HEAD = next_round_robin(
    table="fair_jobs",
    tenant="organization_id",
    member="distribution_id",
    ready="state = 'Waiting' AND is_ready AND due_at <= now()",
    order="due_at",
)
CLAIM = f"""
WITH head AS ({HEAD})
UPDATE fair_jobs SET state = 'Running' FROM head WHERE fair_jobs.id = head.id
RETURNING fair_jobs.id, head.tenant, head.member"""
A, B, C = sorted(new_id() for _ in range(3))


@pytest.fixture(scope="module")
def database(administrator_url: str) -> Iterator[Database]:
    """This module's database, as one who may make a table in it."""
    database = Database(administrator_url.replace("postgresql://", "postgresql+psycopg2://", 1))
    yield database
    database.dispose()


@pytest.fixture(scope="module", autouse=True)
def _table(database: Database) -> None:
    with database.transaction() as session:
        for statement in (
            (
                "CREATE TABLE fair_jobs (id bigserial PRIMARY KEY, organization_id uuid NOT NULL,"
                " distribution_id uuid NOT NULL, state text NOT NULL DEFAULT 'Waiting',"
                " is_ready boolean NOT NULL DEFAULT true, due_at timestamptz NOT NULL DEFAULT clock_timestamp(),"
                " body text NOT NULL DEFAULT repeat('x', 200))"
            ),
            (
                "CREATE INDEX ON fair_jobs (organization_id, distribution_id, due_at)"
                " WHERE state = 'Waiting' AND is_ready"
            ),
            "CREATE INDEX ON fair_jobs (due_at) WHERE state = 'Waiting'",
        ):
            session.execute(text(statement))


@pytest.fixture(autouse=True)
def _empty(database: Database) -> Iterator[None]:
    yield
    with database.transaction() as session:
        session.execute(text("TRUNCATE fair_jobs"))


def add(session: Session, tenant: UUID, count: int, member: UUID | None = None, **columns: str) -> UUID:
    member = member or new_id()
    values = {"is_ready": "true", "due_at": "now() - interval '1 hour' + n * interval '1 ms'", **columns}
    statement = f"""
        INSERT INTO fair_jobs (organization_id, distribution_id, is_ready, due_at)
        SELECT :tenant, :member, {values["is_ready"]}, {values["due_at"]} FROM generate_series(1, :count) n"""
    session.execute(text(statement), {"tenant": tenant, "member": member, "count": count})
    return member


def claim(database: Database, rotation: RoundRobin, count: int, **full: Any) -> list[Any]:
    claimed = []
    for _ in range(count):
        with database.transaction() as session:
            row = rotation.claim(session, text(CLAIM), **full)
        if row is None:
            break
        claimed.append(row)
    return claimed


def test_each_tenant_has_its_turn_whoever_has_more_rows(database: Database) -> None:
    with database.transaction() as session:
        add(session, B, 1000)
        for tenant in (A, C):
            add(session, tenant, 5)
    served = [row.tenant for row in claim(database, RoundRobin(), 18)]
    assert Counter(served[:15]) == {A: 5, B: 5, C: 5}
    assert served[15:] == [B, B, B]


def test_members_of_a_tenant_take_turns(database: Database) -> None:
    with database.transaction() as session:
        busy = add(session, A, 100)
        quiet = add(session, A, 3)
        add(session, B, 10)
    served = [row.member for row in claim(database, RoundRobin(), 12) if row.tenant == A]
    assert served == [busy, quiet] * 3


def test_everything_is_claimed_once_in_the_end(database: Database) -> None:
    tenants = [new_id() for _ in range(2 * REMEMBERED_TENANTS)]
    with database.transaction() as session:
        for tenant in tenants:
            for _ in range(3):
                add(session, tenant, 2)
    claimed = claim(database, RoundRobin(), 1000)
    assert len({row.id for row in claimed}) == len(claimed) == 6 * len(tenants)
    assert Counter(row.tenant for row in claimed[: len(tenants)]) == dict.fromkeys(tenants, 1)


def test_tenants_and_members_at_their_limit_are_passed_over(database: Database) -> None:
    with database.transaction() as session:
        add(session, A, 100)
        full = add(session, B, 100)
        other = add(session, B, 2)
    claimed = claim(database, RoundRobin(), 10, full_tenants=[A, ANONYMOUS], full_members=[(B, full)])
    assert [row.member for row in claimed] == [other, other]


def test_a_second_claimer_finds_work_while_the_first_has_not_committed(database: Database) -> None:
    with database.transaction() as session:
        add(session, A, 5)
    with database.transaction() as first, database.transaction() as second:
        one = RoundRobin().claim(first, text(CLAIM))
        other = RoundRobin().claim(second, text(CLAIM))
        assert one is not None
        assert other is not None
        assert one.id != other.id


def test_what_is_due_later_is_not_claimed(database: Database) -> None:
    with database.transaction() as session:
        add(session, A, 5, due_at="now() + interval '1 day'")
    assert claim(database, RoundRobin(), 1) == []


def test_a_claim_looks_at_few_rows_however_many_wait(database: Database) -> None:
    with database.transaction() as session:
        add(session, A, 100_000)
        full = add(session, B, 10_000)
        add(session, C, 100_000, is_ready="false", due_at="now() + interval '1 day'")
        last = add(session, C, 1)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE fair_jobs"))
    rotation = RoundRobin()
    claim(database, rotation, 2, full_tenants=[B])
    ranges = rotation.parameters(full_tenants=[A], full_members=[(B, full), (C, last)])
    plan = explain(database, CLAIM, ranges)
    assert plan.rows_removed == 0
    assert plan.blocks < 200
    plan = explain(database, CLAIM, rotation.parameters())
    assert plan.node_types.isdisjoint({"Seq Scan", "Sort", "Bitmap Heap Scan"})
    assert plan.blocks < 60


@pytest.mark.parametrize("tenant", [A, C])
def test_with_shares_switched_off_the_first_tenant_is_served_alone(
    database: Database, tenant: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(failpoints._armed, UNFAIR, 0)
    with database.transaction() as session:
        add(session, A, 10)
        add(session, C, 10)
    assert {row.tenant for row in claim(database, RoundRobin(), 10, full_tenants=[tenant])} == {A}
