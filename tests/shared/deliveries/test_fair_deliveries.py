"""An organization's messages do not wait for the silent endpoints of others, however many there are."""

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text

from shared.config.settings import Settings
from shared.db.database import Database
from shared.deliveries import claims
from shared.deliveries.circuit_breaker import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    PROBE_SECONDS,
    CircuitBreakers,
    origin_of,
)
from shared.deliveries.outbox import DeliveryState
from shared.deliveries.sender import Sender
from shared.fairness.fair_queueing import RoundRobin
from shared.ids import new_id
from tests.shared.deliveries import outbox
from tests.shared.deliveries.outbox import BODY, claim_due, enqueue, enqueue_many, let_time_pass, read
from tests.shared.egress.servers import Server, content, silence
from tests.support.data.query_plans import explain
from tests.support.processes.stack import wait_until

OK = content(b"")


@contextmanager
def sending(sender: Sender) -> Iterator[None]:
    thread = threading.Thread(target=sender.send_due)
    thread.start()
    yield
    sender.stop()
    thread.join()


def paths(server: Server) -> Counter[str]:
    return Counter(asked.path for asked in server.asked)


# Of one tenant no attempt ends meanwhile: it is the share alone that leaves room. Twenty may use up the pool, until
# their first attempts end and the servers are set aside.
@pytest.mark.parametrize(("tenants", "attempt_seconds"), [(1, 60.0), (20, 1.0)])
def test_a_thousand_silent_endpoints_of_others_hold_up_nobody(
    database: Database,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    tenants: int,
    attempt_seconds: float,
) -> None:
    monkeypatch.setattr("shared.deliveries.sender.ATTEMPT_SECONDS", attempt_seconds)
    monkeypatch.setattr("shared.deliveries.sender.SLOW_SECONDS", attempt_seconds / 2)
    over = threading.Event()
    server.on("/silent", lambda _: [over.wait(60)].clear())
    server.on("/quick", OK)
    slots = Settings.model_fields["concurrent_deliveries"].default
    for _ in range(tenants):
        enqueue_many(database, server.url("/silent"), new_id(), 1000 // tenants)
    with outbox.sender(database, concurrent_deliveries=slots) as sender, sending(sender):
        wait_until(lambda: paths(server)["/silent"] >= slots // 2, "many wait")
        victim = new_id()
        delivery_id = enqueue(database, server.url("/quick"), victim, organization_id=new_id())
        sender.send_due()
        wait_until(
            lambda: read(database, victim, delivery_id).state is DeliveryState.DELIVERED, "the victim's"
        )
        sender.stop()
        over.set()


def test_a_server_that_does_not_answer_holds_one_slot_until_it_does(
    database: Database, sender: Sender, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.deliveries.sender.ATTEMPT_SECONDS", 0.2)
    monkeypatch.setattr("shared.deliveries.sender.SLOW_SECONDS", 0.1)
    server.on("/hook", silence())
    ids = {new_id(): None for _ in range(30)}
    waiting = {destination: enqueue(database, server.url("/hook"), destination) for destination in ids}
    sender.send_due()
    # A lone organization has half of the slots; when the first attempts have timed out, the others wait.
    first = server.asked.copy()
    assert 1 <= len(first) <= outbox.SETTINGS.concurrent_deliveries // 2
    states = Counter(read(database, at, waiting[at]).attempts for at in ids)
    assert states == {1: len(first), 0: 30 - len(first)}
    let_time_pass(database)
    sender.send_due()
    assert len(server.asked) == len(first), "the breaker is open"
    server.on("/hook", OK)
    monkeypatch.setattr(sender._breakers, "_clock", lambda: 1e12)
    let_time_pass(database)
    sender.send_due()
    let_time_pass(database)
    sender.send_due()
    assert {read(database, at, waiting[at]).state for at in ids} == {DeliveryState.DELIVERED}


def test_a_breaker_opens_is_tried_by_one_and_closes_with_an_answer() -> None:
    now = 1000.0
    breakers = CircuitBreakers(clock=lambda: now)
    origin = origin_of(new_id(), "https://user@Example.com:8443/path?query")
    assert origin[1] == "https://example.com:8443"
    assert breakers.admit(origin) == 0
    breakers.failed(origin, is_slow=False)
    assert breakers.admit(origin) == 0
    breakers.failed(origin, is_slow=True)
    breakers.failed(origin, is_slow=True)
    assert breakers.admit(origin) == FIRST_PAUSE_SECONDS
    assert breakers.admit((new_id(), origin[1])) == 0
    now += FIRST_PAUSE_SECONDS
    assert [breakers.admit(origin) for _ in range(2)] == [0, PROBE_SECONDS]
    breakers.failed(origin, is_slow=False)
    assert breakers.admit(origin) == 2 * FIRST_PAUSE_SECONDS
    for _ in range(20):
        now += LONGEST_PAUSE_SECONDS
        assert breakers.admit(origin) == 0
        breakers.failed(origin, is_slow=True)
    assert breakers.admit(origin) == LONGEST_PAUSE_SECONDS
    now += LONGEST_PAUSE_SECONDS
    assert breakers.admit(origin) == 0
    breakers.answered(origin)
    assert [breakers.admit(origin) for _ in range(2)] == [0, 0]


def test_organizations_and_destinations_take_turns(database: Database) -> None:
    first, second = sorted(new_id() for _ in range(2))
    destinations = [new_id() for _ in range(3)]
    for destination in destinations[:2]:
        for _ in range(4):
            enqueue(database, "http://unused/", destination, organization_id=first)
    enqueue(database, "http://unused/", destinations[2], organization_id=second)
    with database.transaction() as session:
        claimed = claim_due(session, limit=5)
    assert second in [claim.organization_id for claim in claimed[:2]]
    turns = Counter(claim.destination_id for claim in claimed)
    assert turns == {destinations[0]: 2, destinations[1]: 2, destinations[2]: 1}


def test_two_claimers_find_different_messages(database: Database) -> None:
    for tenant in [new_id() for _ in range(4)]:
        for _ in range(3):
            enqueue(database, "http://unused/", new_id(), organization_id=tenant)
    here = threading.Barrier(2)

    def claim(_: int) -> list[UUID]:
        rotation, claimed = RoundRobin(), list[UUID]()
        here.wait()
        while True:
            with database.transaction() as session:
                found = claim_due(session, limit=1, rotation=rotation)
            if not found:
                return claimed
            claimed += [each.id for each in found]

    with ThreadPoolExecutor(2) as pool:
        claimed = [delivery_id for each in pool.map(claim, range(2)) for delivery_id in each]
    assert len(claimed) == len(set(claimed)) == 12


def test_a_claim_costs_the_same_however_many_messages_wait(database: Database) -> None:
    tenants = sorted(new_id() for _ in range(3))
    fill(database, tenants[0], 20_000, due="now() - interval '1 hour'", is_ready=True)
    fill(database, tenants[1], 20_000, due="now() + interval '1 day'", is_ready=False)
    fill(database, tenants[2], 10, due="now() - interval '1 s'", is_ready=True)
    with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE deliveries"))
    for full in ([], [tenants[0]]):
        values = RoundRobin().parameters(full_tenants=full)
        plan = explain(database, claims.CLAIM, {**values, "lease": claims.LEASE})
        assert "ix_deliveries_ready" in plan.indexes
        assert plan.rows_removed == 0
        assert plan.node_types.isdisjoint({"Seq Scan", "Sort"})
        assert plan.blocks < 100
    plan = explain(database, claims.MARK_READY)
    assert "ix_deliveries_later" in plan.indexes
    assert plan.blocks < 20


def fill(database: Database, organization_id: UUID, count: int, *, due: str, is_ready: bool) -> None:
    with database.transaction() as session:
        session.execute(
            text(f"""
                INSERT INTO deliveries (id, kind, event, destination_id, organization_id, content_type, body,
                    in_flight_limit, attempt_limit, due_at, is_ready)
                SELECT gen_random_uuid(), 'test', 'x', :destination, :organization, 'text/plain', :body, 4, 10,
                    {due}, :is_ready
                FROM generate_series(1, :count)"""),
            {
                "destination": uuid4(),
                "organization": organization_id,
                "body": BODY,
                "is_ready": is_ready,
                "count": count,
            },
        )
