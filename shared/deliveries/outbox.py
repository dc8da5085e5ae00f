"""The outbox: messages to other services, written in the transaction that they tell of, kept until they arrive.

Delivery is at least once, always under the same id, the delivery's own. A body may hold personal data: it is deleted
on arrival, and with the row some weeks after a dead letter.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, func, insert, select, update

from shared.database import Session
from shared.deliveries.errors import DeliveryNotDead, DeliveryNotFound, DeliveryTooLarge
from shared.deliveries.schedule import MAX_ATTEMPTS
from shared.deliveries.tables import deliveries
from shared.encryption import Encryption
from shared.ids import new_id
from shared.jobs import Job
from shared.pagination import Page, Position, newest_first
from shared.queues import NOTIFICATIONS

MAX_BODY_BYTES = 8 << 20
DEFAULT_IN_FLIGHT = 4

_table = deliveries.c


class DeliveryState(StrEnum):
    """Where a delivery is."""

    WAITING = "Waiting"
    SENDING = "Sending"
    DELIVERED = "Delivered"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendDeliveries(Job):
    """Messages may wait to be sent, or to be sent again."""

    kind = "deliveries.send"
    queue = NOTIFICATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A delivery, as it may be listed."""

    id: UUID
    kind: str
    event: str
    destination_id: UUID
    organization_id: UUID
    state: DeliveryState
    attempts: int
    due_at: datetime
    """When the next attempt is due, while it waits."""
    last_status: int | None
    last_code: str | None
    """What the last attempt failed with, when there was no answer."""
    last_attempt_at: datetime | None
    ended_at: datetime | None
    created_at: datetime


def enqueue_delivery(
    session: Session,
    *,
    kind: str,
    event: str,
    destination_id: UUID,
    organization_id: UUID,
    body: bytes,
    content_type: str = "application/json",
    sealed_address: bytes | None = None,
    in_flight_limit: int = DEFAULT_IN_FLIGHT,
    attempt_limit: int = MAX_ATTEMPTS,
) -> UUID:
    """Enqueue a message to be posted after the commit; give the id it is sent under.

    The channel of `kind` gives address and signature at each attempt; without one the message goes to
    `sealed_address` (from `seal_address`). `in_flight_limit` bounds the messages under way to one destination; 1
    keeps their order while none fails. Raises DeliveryTooLarge.
    """
    if len(body) > MAX_BODY_BYTES:
        raise DeliveryTooLarge
    delivery_id = new_id()
    session.execute(
        insert(deliveries).values(
            id=delivery_id,
            kind=kind,
            event=event,
            destination_id=destination_id,
            organization_id=organization_id,
            address_encrypted=sealed_address,
            content_type=content_type,
            body=body,
            in_flight_limit=in_flight_limit,
            attempt_limit=attempt_limit,
            # The clock at each statement: messages go out in the order in which a transaction wrote them.
            due_at=func.clock_timestamp(),
        )
    )
    session.enqueue(SendDeliveries())
    return delivery_id


def seal_address(encryption: Encryption, *, url: str, headers: Mapping[str, str]) -> bytes:
    """Encrypt where to post and with which headers, either of which may be secret."""
    return encryption.encrypt(json.dumps({"url": url, "headers": dict(headers)}))


def get_delivery(session: Session, *, destination_id: UUID, delivery_id: UUID) -> Delivery:
    """Get one delivery to a destination. Raises DeliveryNotFound."""
    row = session.execute(
        select(*_columns).where(_table.id == delivery_id, _table.destination_id == destination_id)
    ).one_or_none()
    if row is None:
        raise DeliveryNotFound
    return _delivery(row)


def list_deliveries(
    session: Session, *, destination_id: UUID, state: DeliveryState | None = None, **page: Unpack[Position]
) -> Page[Delivery]:
    """List the deliveries to a destination, newest first."""
    statement = select(*_columns).where(_table.destination_id == destination_id)
    if state is not None:
        statement = statement.where(_table.state == state.value)
    return newest_first(session, statement, _table.id, _delivery, **page)


def resend_delivery(session: Session, *, destination_id: UUID, delivery_id: UUID) -> Delivery:
    """Resend a delivery that was given up, under the id it had. Raises DeliveryNotFound, DeliveryNotDead."""
    if _revive(session, _table.id == delivery_id, _table.destination_id == destination_id) == 0:
        get_delivery(session, destination_id=destination_id, delivery_id=delivery_id)
        raise DeliveryNotDead
    return get_delivery(session, destination_id=destination_id, delivery_id=delivery_id)


def resend_dead(session: Session, *, destination_id: UUID) -> int:
    """Resend every delivery to a destination that was given up; return how many."""
    return _revive(session, _table.destination_id == destination_id)


def give_up(session: Session, *, destination_id: UUID, code: str, sealed_address: bytes | None = None) -> int:
    """Give up what waits for a destination that is gone; return how many. What is under way ends by itself.

    With a `sealed_address`, only what carries that one: the destination may have moved.
    """
    given_up = update(deliveries).where(_table.destination_id == destination_id, _table.state == "Waiting")
    if sealed_address is not None:
        given_up = given_up.where(_table.address_encrypted == sealed_address)
    return session.execute(given_up.values(state="Dead", last_code=code, ended_at=func.now())).rowcount


def _revive(session: Session, *conditions: Any) -> int:
    result = session.execute(
        update(deliveries)
        .where(*conditions, _table.state == "Dead")
        .values(state="Waiting", attempts=0, lapses=0, is_ready=True, due_at=func.now(), ended_at=None)
    )
    if result.rowcount:
        session.enqueue(SendDeliveries())
    return result.rowcount


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(**{**row._asdict(), "state": DeliveryState(row.state)})


_columns = (
    _table.id,
    _table.kind,
    _table.event,
    _table.destination_id,
    _table.organization_id,
    _table.state,
    _table.attempts,
    _table.due_at,
    _table.last_status,
    _table.last_code,
    _table.last_attempt_at,
    _table.ended_at,
    _table.created_at,
)
