"""The outbox: what is written down, listed, sent again and forgotten."""

import contextlib
from uuid import uuid4

import pytest
from sqlalchemy import text

from shared.database import Database
from shared.deliveries.backlog import measure_deliveries
from shared.deliveries.errors import DeliveryNotDead, DeliveryNotFound, DeliveryTooLarge
from shared.deliveries.outbox import (
    MAX_BODY_BYTES,
    DeliveryState,
    SendDeliveries,
    enqueue_delivery,
    give_up,
    list_deliveries,
    resend_dead,
    resend_delivery,
)
from shared.deliveries.purge import purge_deliveries
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


def test_only_what_was_given_up_is_sent_again(database: Database) -> None:
    destination = uuid4()
    delivery_id = enqueue(database, "http://unused/", destination)
    with database.transaction() as session:
        with pytest.raises(DeliveryNotDead):
            resend_delivery(session, destination_id=destination, delivery_id=delivery_id)
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
    enqueue(database, "http://unused/", uuid4())
    for _ in range(2):
        enqueue(database, "http://unused/", destination)
    later = enqueue(database, "http://unused/", uuid4())
    with database.transaction() as session:
        give_up(session, destination_id=destination, code="destination_gone")
        session.execute(
            text("UPDATE deliveries SET due_at = now() + interval '1 hour' WHERE id = :id"), {"id": later}
        )
        backlog = measure_deliveries(session)
    assert (backlog.due, backlog.dead) == (1, 2)
    assert backlog.oldest_due_seconds >= 0
