"""Send messages now that wait for their next attempt, and replay those that were given up or missed.

Each goes out under the id it had, so a receiver that has it already knows it. What was given up without an order goes
out one after the other in the order in which it was written, as long as the destination takes it; an ordered message
keeps its place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import ColumnElement, select, text

from shared.db.database import Session
from shared.deliveries.errors import DeliveryNotDead
from shared.deliveries.ordering import FAR_FUTURE, lock_order, release_next
from shared.deliveries.outbox import Delivery, DeliveryState, SendDeliveries, get_delivery
from shared.deliveries.tables import deliveries
from shared.pagination import ascending

REPLAY_LIMIT = 1000
"""So many messages are replayed at once."""

_table = deliveries.c
_IN_ORDER = ascending(_table.created_at, _table.id)
# One under way at a time, each due a moment after the one before it.
_REVIVE = text(
    """
UPDATE deliveries SET state = 'Waiting', attempts = 0, lapses = 0, ended_at = NULL,
    is_held = place IS NOT NULL, is_ready = place IS NULL,
    in_flight_limit = CASE WHEN place IS NULL THEN 1 ELSE in_flight_limit END,
    due_at = CASE WHEN place IS NULL THEN statement_timestamp() + batch.number * interval '1 microsecond'
        ELSE :held_until END
FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS batch (id, number)
WHERE deliveries.id = batch.id AND destination_id = :destination AND state = 'Dead'
"""
)
# What is held waits for the head of its order.
_HASTEN = text(
    """
UPDATE deliveries SET is_ready = true, due_at = now()
WHERE destination_id = :destination AND state = 'Waiting' AND NOT is_held
    AND (id = :id OR (:is_held AND place IS NOT NULL))
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """How many messages are sent again, and after which one the next replay goes on, if there are more."""

    count: int
    next_cursor: UUID | None


def resend_delivery(session: Session, *, destination_id: UUID, delivery_id: UUID) -> Delivery:
    """Send a delivery now that waits for its next attempt or was given up, under the id it had.

    One that waits for others before it in an order has the first of them sent. Raises DeliveryNotFound,
    DeliveryNotDead for one that has arrived.
    """
    lock_order(session, destination_id)
    found = get_delivery(session, destination_id=destination_id, delivery_id=delivery_id)
    match found.state:
        case DeliveryState.DELIVERED:
            raise DeliveryNotDead
        case DeliveryState.DEAD:
            _revive(session, destination_id, [delivery_id])
        case DeliveryState.WAITING:
            which = {"destination": destination_id, "id": delivery_id, "is_held": found.is_held}
            session.execute(_HASTEN, which)
            session.enqueue(SendDeliveries())
    return get_delivery(session, destination_id=destination_id, delivery_id=delivery_id)


def resend_dead(session: Session, *, destination_id: UUID) -> int:
    """Replay the first so many deliveries to a destination that were given up; return how many."""
    return replay(session, destination_id=destination_id).count


def replay(
    session: Session, *, destination_id: UUID, since: datetime | None = None, cursor: UUID | None = None
) -> Replayed:
    """Replay what was given up or missed, in the order in which it was written, up to REPLAY_LIMIT.

    `since` is when the first of it was written; `cursor` is the last message that the receiver has.
    """
    lock_order(session, destination_id)
    which = select(_table.id).where(_table.destination_id == destination_id, _table.state == text("'Dead'"))
    if since is not None:
        which = which.where(_table.created_at >= since)
    if cursor is not None:
        which = which.where(_later_than(session, destination_id, cursor))
    ids = session.execute(_IN_ORDER.order(which).limit(REPLAY_LIMIT + 1)).scalars().all()
    chosen = ids[:REPLAY_LIMIT]
    count = _revive(session, destination_id, chosen)
    return Replayed(count=count, next_cursor=chosen[-1] if len(ids) > len(chosen) else None)


def _later_than(session: Session, destination_id: UUID, cursor: UUID) -> ColumnElement[bool]:
    """Give what was written after a message. The ids of one millisecond are in no order, so its own row tells."""
    last = select(_table.created_at).where(_table.id == cursor, _table.destination_id == destination_id)
    written_at = session.execute(last).scalar_one_or_none()
    if written_at is None:
        return _table.id > cursor
    return _IN_ORDER.after(written_at, cursor)


def _revive(session: Session, destination_id: UUID, ids: Sequence[UUID]) -> int:
    """Let messages wait again, each behind the one before it; the caller holds the order."""
    if not ids:
        return 0
    values = {"destination": destination_id, "ids": [str(at) for at in ids], "held_until": FAR_FUTURE}
    count = session.execute(_REVIVE, values).rowcount
    release_next(session, destination_id)
    session.enqueue(SendDeliveries())
    return count
