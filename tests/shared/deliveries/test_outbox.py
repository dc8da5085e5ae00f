"""The outbox: what is written down, listed, sent again and forgotten."""

import contextlib
from datetime import timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from shared.db.database import Database
from shared.deliveries import replays
from shared.deliveries.backlog import measure_deliveries
from shared.deliveries.errors import DeliveryNotDead, DeliveryNotFound, DeliveryTooLarge
from shared.deliveries.outbox import (
    MAX_BODY_BYTES,
    DeliveryState,
    SendDeliveries,
    enqueue_delivery,
    give_up,
    list_deliveries,
)
from shared.deliveries.purge import purge_deliveries
from shared.deliveries.replays import Replayed, replay, resend_dead, resend_delivery
from shared.deliveries.sender import Sender
from tests.shared.deliveries.outbox import enqueue, read, row
from tests.shared.egress.servers import Server, content


class Undone(Exception):
    """Rolls a transaction back."""


def test_a_message_goes_with_its_transaction(database: Database) -> None:
    destination = uuid4()
    with contextlib.suppress(Undone), database.transaction() as session:
        enqueue_delivery(
            session, kind="test", event="x", destination_id=destination, organization_id=uuid4(), body=b""
        )
        assert session.jobs == [SendDeliveries()]
        raise Undone
    with database.transaction() as session:
        assert list_deliveries(session, destination_id=destination).items == ()


def test_a_message_has_a_largest_size(database: Database) -> None:
    with pytest.raises(DeliveryTooLarge):
        enqueue(database, "http://unused/", uuid4(), body=bytes(MAX_BODY_BYTES + 1))


def test_deliveries_are_listed_by_destination_and_state(database: Database) -> None:
    destination = uuid4()
    ids = [enqueue(database, "http://unused/", destination) for _ in range(5)]
    enqueue(database, "http://unused/", uuid4())
    with database.transaction() as session:
        first = list_deliveries(session, destination_id=destination, limit=3)
        rest = list_deliveries(session, destination_id=destination, limit=3, cursor=first.next_cursor)
        dead = list_deliveries(session, destination_id=destination, state=DeliveryState.DEAD)
    assert [delivery.id for delivery in (*first.items, *rest.items)] == sorted(ids, reverse=True)
    assert dead.items == ()


def test_what_was_given_up_is_sent_again_under_its_id(
    database: Database, sender: Sender, server: Server
) -> None:
    destination = uuid4()
    server.on("/hook", content(b""))
    ids = [enqueue(database, server.url("/hook"), destination) for _ in range(3)]
    with database.transaction() as session:
        assert give_up(session, destination_id=destination, code="endpoint_removed") == 3
    assert sender.send_due() == 0
    with database.transaction() as session:
        assert resend_delivery(session, destination_id=destination, delivery_id=ids[0]).attempts == 0
        assert session.jobs == [SendDeliveries()]
    sender.send_due()
    assert read(database, destination, ids[0]).state is DeliveryState.DELIVERED
    with database.transaction() as session:
        assert resend_dead(session, destination_id=destination) == 2
        assert resend_dead(session, destination_id=destination) == 0
    sender.send_due()
    assert {read(database, destination, at).state for at in ids} == {DeliveryState.DELIVERED}
    assert len(server.asked) == 3


def test_what_waits_for_another_attempt_is_sent_now(
    database: Database, sender: Sender, server: Server
) -> None:
    destination = uuid4()
    server.on("/hook", content(b"", status="500 Failed"))
    delivery_id = enqueue(database, server.url("/hook"), destination)
    sender.send_due()
    assert sender.send_due() == 0
    server.on("/hook", content(b""))
    with database.transaction() as session:
        hastened = resend_delivery(session, destination_id=destination, delivery_id=delivery_id)
        assert (hastened.state, hastened.attempts) == (DeliveryState.WAITING, 1)
    sender.send_due()
    assert read(database, destination, delivery_id).state is DeliveryState.DELIVERED
    with database.transaction() as session, pytest.raises(DeliveryNotDead):
        resend_delivery(session, destination_id=destination, delivery_id=delivery_id)


def test_replay_sends_undelivered_messages_in_order_from_the_given_position(
    database: Database, sender: Sender, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = uuid4()
    server.on("/hook", content(b""))
    ids = [enqueue(database, server.url("/hook"), destination) for _ in range(9)]
    sender.send_due()
    assert len(server.asked) == 9
    ids += [enqueue(database, server.url("/hook"), destination) for _ in range(9)]
    with database.transaction() as session:
        assert give_up(session, destination_id=destination, code="endpoint_removed") == 9
    written = read(database, destination, ids[12]).created_at
    monkeypatch.setattr(replays, "REPLAY_LIMIT", 2)
    with database.transaction() as session:
        first = replay(session, destination_id=destination, since=written)
    with database.transaction() as session:
        rest = replay(session, destination_id=destination, cursor=first.next_cursor)
    assert (first.count, first.next_cursor, rest.count, rest.next_cursor) == (2, ids[13], 2, ids[15])
    sender.send_due()
    assert [asked.headers["webhook-id"] for asked in server.asked[9:]] == [str(at) for at in ids[12:16]]
    with database.transaction() as session:
        assert replay(session, destination_id=destination, cursor=ids[-1]).count == 0
        assert replay(session, destination_id=uuid4()) == Replayed(count=0, next_cursor=None)


def test_a_message_of_another_destination_or_of_none_is_not_sent(database: Database) -> None:
    destination = uuid4()
    delivery_id = enqueue(database, "http://unused/", destination)
    with database.transaction() as session:
        with pytest.raises(DeliveryNotFound):
            resend_delivery(session, destination_id=uuid4(), delivery_id=delivery_id)
        with pytest.raises(DeliveryNotFound):
            resend_delivery(session, destination_id=destination, delivery_id=uuid4())


def test_what_arrived_is_forgotten_before_what_did_not(database: Database) -> None:
    destination = uuid4()
    waiting, delivered, dead, old = (enqueue(database, "http://unused/", destination) for _ in range(4))
    changes = {
        delivered: "state = 'Delivered', body = NULL, ended_at = now() - interval '8 days'",
        dead: "state = 'Dead', ended_at = now() - interval '8 days'",
        old: "state = 'Dead', ended_at = now() - interval '31 days'",
        waiting: "created_at = now() - interval '40 days'",
    }
    with database.transaction() as session:
        for delivery_id, change in changes.items():
            session.execute(text(f"UPDATE deliveries SET {change} WHERE id = :id"), {"id": delivery_id})
    assert purge_deliveries(database) >= 2
    for gone in (delivered, old):
        with pytest.raises(DeliveryNotFound):
            read(database, destination, gone)
    assert row(database, dead).body is not None
    assert read(database, destination, waiting).state is DeliveryState.WAITING


def test_what_is_due_and_what_was_given_up_is_counted(database: Database) -> None:
    destination = uuid4()
    due = enqueue(database, "http://unused/", uuid4())
    for _ in range(2):
        enqueue(database, "http://unused/", destination)
    later = enqueue(database, "http://unused/", uuid4())
    with database.transaction() as session:
        give_up(session, destination_id=destination, code="destination_gone")
        for delivery_id, minutes in ((later, 60), (due, -10)):
            session.execute(
                text("UPDATE deliveries SET due_at = now() + :wait WHERE id = :id"),
                {"id": delivery_id, "wait": timedelta(minutes=minutes)},
            )
        backlog = measure_deliveries(session)
    assert (backlog.due, backlog.dead, backlog.oldest_due_seconds) == (1, 2, 600)
