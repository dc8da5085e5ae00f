"""Ordered messages: a message waits until the failed one before it was delivered or given up."""

import threading
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import text
from standardwebhooks import Webhook

from shared.db.database import Database
from shared.deliveries.ordering import lock_order, release_next
from shared.deliveries.outbox import DeliveryState, enqueue_delivery, give_up, list_deliveries
from shared.deliveries.purge import purge_deliveries
from shared.deliveries.replays import resend_dead
from shared.deliveries.sealed_addresses import seal_address
from shared.deliveries.sender import Sender
from shared.encryption import Encryption
from tests.shared.deliveries import outbox
from tests.shared.deliveries.outbox import SETTINGS, claim_due, enqueue, let_time_pass, read, row
from tests.shared.egress.servers import Server, content
from tests.support.processes.stack import wait_until

OK = content(b"")
FAILS = content(b"", status="500 Failed")


def enqueue_in_order(
    database: Database, url: str, destination: UUID, count: int, *, first: int = 0, **options: Any
) -> list[UUID]:
    return [
        enqueue(database, url, destination, ordered=True, body=str(number).encode(), **options)
        for number in range(first, first + count)
    ]


def bodies(server: Server) -> list[int]:
    return [int(asked.body) for asked in server.asked]


def states(database: Database, destination: UUID, ids: Sequence[UUID]) -> list[str]:
    return [read(database, destination, at).state.value for at in ids]


def test_what_follows_a_failed_message_waits_behind_it(
    database: Database, sender: Sender, server: Server
) -> None:
    server.on("/hook", FAILS)
    destination = uuid4()
    enqueue_in_order(database, server.url("/hook"), destination, 5)
    assert sender.send_due() == 1
    enqueue_in_order(database, server.url("/hook"), destination, 5, first=5)
    assert sender.send_due() == 0
    server.on("/hook", OK)
    let_time_pass(database)
    assert sender.send_due() == 10
    assert bodies(server) == [0, *range(10)]


def test_only_what_is_ordered_waits(database: Database, sender: Sender, server: Server) -> None:
    server.on("/hook", FAILS)
    destination, other = uuid4(), uuid4()
    enqueue_in_order(database, server.url("/hook"), destination, 2)
    sender.send_due()
    server.on("/hook", OK)
    enqueue(database, server.url("/hook"), destination, body=b"7")
    enqueue_in_order(database, server.url("/hook"), other, 2, first=8)
    sender.send_due()
    assert sorted(bodies(server)) == [0, 7, 8, 9]


def test_a_message_that_is_given_up_lets_the_rest_go_on(
    database: Database, sender: Sender, server: Server
) -> None:
    server.on("/hook", FAILS)
    destination = uuid4()
    (head,) = enqueue_in_order(database, server.url("/hook"), destination, 1, attempt_limit=2)
    rest = enqueue_in_order(database, server.url("/hook"), destination, 3, first=1)
    sender.send_due()
    let_time_pass(database)
    server.on("/hook", content(b"", status="400 No"))
    sender.send_due()
    assert states(database, destination, [head]) == ["Dead"]
    server.on("/hook", OK)
    let_time_pass(database)
    sender.send_due()
    assert bodies(server) == [0, 0, 1, 1, 2, 3]
    assert states(database, destination, rest) == ["Delivered"] * 3


def test_what_is_held_is_no_backlog_and_has_no_next_attempt(database: Database) -> None:
    destination = uuid4()
    enqueue_in_order(database, "http://unused/", destination, 3)
    with database.transaction() as session:
        assert len(claim_due(session, limit=5)) == 1
    with database.transaction() as session:
        page = list_deliveries(session, destination_id=destination)
    assert [delivery.is_held for delivery in page.items] == [True, True, False]
    assert {delivery.state for delivery in page.items[:2]} == {DeliveryState.WAITING}


def test_an_open_breaker_keeps_the_order(
    database: Database, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = uuid4()
    server.on("/hook", OK)
    enqueue_in_order(database, server.url("/hook"), destination, 4)
    with outbox.sender(database) as sender:
        admitted = iter([30.0])
        monkeypatch.setattr(sender._breakers, "admit", lambda _: next(admitted, 0.0))
        sender.send_due()
        assert server.asked == []
        enqueue_in_order(database, server.url("/hook"), destination, 1, first=4)
        assert sender.send_due() == 0
        let_time_pass(database)
        sender.send_due()
    assert bodies(server) == list(range(5))


def test_replayed_dead_letters_keep_their_place_in_the_order(
    database: Database, sender: Sender, server: Server
) -> None:
    destination = uuid4()
    server.on("/hook", OK)
    enqueue_in_order(database, server.url("/hook"), destination, 3)
    with database.transaction() as session:
        assert give_up(session, destination_id=destination, code="endpoint_removed") == 3
    enqueue_in_order(database, server.url("/hook"), destination, 2, first=3)
    with database.transaction() as session:
        assert resend_dead(session, destination_id=destination) == 3
    sender.send_due()
    assert bodies(server) == [3, 0, 1, 2, 4]


def test_an_address_that_is_gone_lets_what_goes_elsewhere_go_on(
    database: Database, sender: Sender, server: Server
) -> None:
    server.on("/old", content(b"", status="410 Gone"))
    server.on("/new", OK)
    destination = uuid4()
    enqueue_in_order(database, server.url("/old"), destination, 2)
    enqueue_in_order(database, server.url("/new"), destination, 2, first=2)
    sender.send_due()
    assert bodies(server) == [0, 2, 3]


def test_an_end_and_a_new_message_at_once_leave_nothing_held(
    database: Database, sender: Sender, server: Server
) -> None:
    destination = uuid4()
    server.on("/hook", OK)
    written = threading.Event()

    def write() -> None:
        for number in range(60):
            enqueue_in_order(database, server.url("/hook"), destination, 1, first=number)
        written.set()

    thread = threading.Thread(target=write)
    thread.start()
    while not written.is_set():
        sender.send_due()
    thread.join()
    wait_until(lambda: sender.send_due() >= 0 and len(server.asked) == 60, "all have arrived")
    assert bodies(server) == list(range(60))


def test_concurrent_removal_and_end_of_a_message_do_not_deadlock(database: Database) -> None:
    destination = uuid4()
    enqueue_in_order(database, "http://unused/", destination, 2)
    with database.transaction() as session:
        (head,) = claim_due(session, limit=1)

    def remove() -> None:
        with database.transaction() as session:
            give_up(session, destination_id=destination, code="removed")

    def is_waiting() -> bool:
        with database.transaction() as session:
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            return bool(session.execute(text(waiting)).scalar())

    thread = threading.Thread(target=remove)
    with database.transaction() as session:
        lock_order(session, destination)
        session.execute(
            text("UPDATE deliveries SET state = 'Dead', ended_at = now() WHERE id = :id"), {"id": head.id}
        )
        thread.start()
        wait_until(is_waiting, "the removal waits")
        release_next(session, destination)
    thread.join()
    with database.transaction() as session:
        page = list_deliveries(session, destination_id=destination)
    assert {delivery.state for delivery in page.items} == {DeliveryState.DEAD}


def test_a_queue_whose_head_ended_unseen_goes_on(database: Database, sender: Sender, server: Server) -> None:
    destination = uuid4()
    server.on("/hook", OK)
    head, _ = enqueue_in_order(database, server.url("/hook"), destination, 2)
    with database.transaction() as session:
        # As a process of the release before ends a message.
        session.execute(
            text("UPDATE deliveries SET state = 'Dead', ended_at = now() WHERE id = :id"), {"id": head}
        )
    assert sender.send_due() == 0
    purge_deliveries(database)
    sender.send_due()
    assert bodies(server) == [1]


def test_a_sealed_message_is_signed_and_numbered(database: Database, sender: Sender, server: Server) -> None:
    server.on("/hook", FAILS)
    secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    address = seal_address(
        Encryption(SETTINGS), url=server.url("/hook"), headers={"X-Mine": "1"}, secret=secret
    )
    destination = uuid4()
    with database.transaction() as session:
        delivery_id = enqueue_delivery(
            session,
            kind="sealed",
            event="x",
            destination_id=destination,
            organization_id=outbox.ORGANIZATION,
            body=outbox.BODY,
            sealed_address=address,
            ordered=True,
            sequence=7,
        )
    assert b"whsec" not in bytes(row(database, delivery_id).address_encrypted)
    sender.send_due()
    let_time_pass(database)
    server.on("/hook", OK)
    sender.send_due()
    for asked in server.asked:
        assert asked.headers["webhook-id"] == str(delivery_id)
        assert asked.headers["webhook-sequence"] == "7"
        assert asked.headers["x-mine"] == "1"
        assert Webhook(secret).verify(asked.body, dict(asked.headers)) == {"hello": "world"}


def test_a_message_without_a_secret_has_an_id_and_a_time(
    database: Database, sender: Sender, server: Server
) -> None:
    server.on("/hook", OK)
    delivery_id = enqueue(database, server.url("/hook"), uuid4())
    sender.send_due()
    (asked,) = server.asked
    assert asked.headers["webhook-id"] == str(delivery_id)
    assert asked.headers["webhook-timestamp"].isdigit()
    assert "webhook-signature" not in asked.headers
    assert "webhook-sequence" not in asked.headers


def test_what_is_sent_again_waits_behind_a_head_that_fails(
    database: Database, sender: Sender, server: Server
) -> None:
    destination = uuid4()
    server.on("/hook", FAILS)
    enqueue_in_order(database, server.url("/hook"), destination, 2)
    with database.transaction() as session:
        assert give_up(session, destination_id=destination, code="endpoint_removed") == 2
    enqueue_in_order(database, server.url("/hook"), destination, 1, first=2)
    with database.transaction() as session:
        assert resend_dead(session, destination_id=destination) == 2
    assert sender.send_due() == 1
    assert bodies(server) == [2]
