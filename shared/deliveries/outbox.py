"""The outbox: messages to other services, written in the transaction that causes them and kept until delivered.

A message is delivered at least once, and every attempt sends the same delivery id. A body may contain personal data,
so it is deleted when the message is delivered. If the message was given up, the body is deleted with its row some
weeks later.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, func, insert, select, update

from shared.db.database import Session
from shared.deliveries.errors import DeliveryNotFound, DeliveryTooLarge
from shared.deliveries.ordering import lock_order, place_last, release_next
from shared.deliveries.schedule import MAX_ATTEMPTS
from shared.deliveries.tables import deliveries
from shared.ids import new_id
from shared.messaging.jobs import Job
from shared.messaging.queues import NOTIFICATIONS
from shared.pagination import Page, Position, descending, paginate

# Limit the size, because a worker holds the whole body in memory while it posts the message.
MAX_BODY_BYTES = 8 << 20
DEFAULT_IN_FLIGHT = 4
MISSED = "endpoint_disabled"
"""The code of a message for a disabled endpoint. Such a message is dead from the start and waits for a replay."""
_OPEN = ("Waiting", "Sending")
# Do not hold such a message: it is dead and must not block later ordered messages.
_MISSED_VALUES = {"state": "Dead", "last_code": MISSED, "ended_at": func.now(), "is_held": False}

_table = deliveries.c


class DeliveryState(StrEnum):
    """The state of a delivery."""

    WAITING = "Waiting"
    SENDING = "Sending"
    DELIVERED = "Delivered"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendDeliveries(Job):
    """Messages may be waiting to be sent."""

    kind = "deliveries.send"
    queue = NOTIFICATIONS


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The state of a delivery, without its body and address."""

    id: UUID
    kind: str
    event: str
    destination_id: UUID
    organization_id: UUID
    state: DeliveryState
    attempts: int
    due_at: datetime
    """The time when the next attempt is due, if the delivery waits and is not held."""
    is_held: bool
    """Whether the delivery waits for an earlier ordered message to the same destination."""
    last_status: int | None
    last_code: str | None
    """Why the last attempt failed, if there was no response."""
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
    ordered: bool = False,
    sequence: int | None = None,
    is_missed: bool = False,
) -> UUID:
    """Enqueue a message to be posted after the commit; return its id. Raises DeliveryTooLarge.

    At each attempt, the URL and the signature come from the channel of `kind`, or from `sealed_address` (made by
    `seal_address`) if the kind has no channel. An `ordered` message waits until all earlier ordered messages to the
    destination have ended. With `is_missed` the message is stored only for a replay.
    """
    if len(body) > MAX_BODY_BYTES:
        raise DeliveryTooLarge
    delivery_id = new_id()
    place = place_last(session, destination_id) if ordered else {"due_at": func.clock_timestamp()}
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
            sequence=sequence,
            **place,
            **(_MISSED_VALUES if is_missed else {}),
        )
    )
    if not is_missed:
        session.enqueue(SendDeliveries())
    return delivery_id


def get_delivery(session: Session, *, destination_id: UUID, delivery_id: UUID) -> Delivery:
    """Return one delivery to a destination. Raises DeliveryNotFound."""
    row = session.execute(
        select(*_columns).where(_table.id == delivery_id, _table.destination_id == destination_id)
    ).one_or_none()
    if row is None:
        raise DeliveryNotFound
    return _delivery(row)


def list_deliveries(
    session: Session, *, destination_id: UUID, state: DeliveryState | None = None, **page: Unpack[Position]
) -> Page[Delivery]:
    """Return a page of deliveries to a destination, newest first."""
    statement = select(*_columns).where(_table.destination_id == destination_id)
    if state is not None:
        statement = statement.where(_table.state == state.value)
    return paginate(session, statement, descending(_table.id), _delivery, **page)


def give_up(session: Session, *, destination_id: UUID, code: str, sealed_address: bytes | None = None) -> int:
    """Mark all undelivered messages to a removed destination as dead. Return the number of messages.

    An attempt in flight cannot be stopped. It is the message's last attempt, and its result is recorded only if the
    message is delivered. With `sealed_address`, only messages with this address are given up, because the destination
    may have moved.
    """
    # Lock the order before any row, as every change of an order does: transactions that lock in one sequence cannot
    # deadlock.
    lock_order(session, destination_id)
    given_up = update(deliveries).where(_table.destination_id == destination_id, _table.state.in_(_OPEN))
    if sealed_address is not None:
        given_up = given_up.where(_table.address_encrypted == sealed_address)
    values = {"state": "Dead", "last_code": code, "ended_at": func.now(), "is_held": False}
    count = session.execute(given_up.values(values)).rowcount
    # Release the next message: messages with another address may have waited behind those that were given up.
    release_next(session, destination_id)
    return count


def readdress(session: Session, *, destination_id: UUID, sealed_address: bytes) -> None:
    """Change the address of a destination's undelivered messages. The next attempt uses the new address."""
    lock_order(session, destination_id)
    is_open = (_table.destination_id == destination_id, _table.state.in_(_OPEN))
    session.execute(update(deliveries).where(*is_open).values(address_encrypted=sealed_address))


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
    _table.is_held,
    _table.last_status,
    _table.last_code,
    _table.last_attempt_at,
    _table.ended_at,
    _table.created_at,
)
