"""Send waiting messages now, and replay dead ones.

Each message is sent with its original id, so a receiver can recognize a message that it already has. Dead messages
that are not `ordered` are sent one after the other in the order of their creation, as long as the destination accepts
them. An ordered message keeps its place in the order.
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
"""The most messages that one replay sends."""

_table = deliveries.c
_IN_ORDER = ascending(_table.created_at, _table.id)
# Allow one message in flight, and make each due a microsecond after the previous one, so that they arrive in order.
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
# A held message cannot be sent before the head of its order, so make the head due now instead.
_HASTEN = text(
    """
UPDATE deliveries SET is_ready = true, due_at = now()
WHERE destination_id = :destination AND state = 'Waiting' AND NOT is_held
    AND (id = :id OR (:is_held AND place IS NOT NULL))
"""
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The number of messages that a replay sends, and the cursor of the next replay if there are more messages."""

    count: int
    next_cursor: UUID | None


def resend_delivery(session: Session, *, destination_id: UUID, delivery_id: UUID) -> Delivery:
    """Send a waiting or dead delivery now, with its original id.

    If the delivery is held, the head of its order is sent instead. Raises DeliveryNotFound, and DeliveryNotDead if the
    delivery has arrived.
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
    """Replay the oldest dead deliveries to a destination, up to REPLAY_LIMIT; return how many."""
    return replay(session, destination_id=destination_id).count


def replay(
    session: Session, *, destination_id: UUID, since: datetime | None = None, cursor: UUID | None = None
) -> Replayed:
    """Replay dead and missed messages in the order of their creation, up to REPLAY_LIMIT.

    `since` is the earliest creation time; `cursor` is the id of the last message that the receiver has.
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
    """Return the condition for messages created after the one at the cursor.

    Ids that were created in the same millisecond have no order, so the condition compares the creation time of the
    rows.
    """
    last = select(_table.created_at).where(_table.id == cursor, _table.destination_id == destination_id)
    written_at = session.execute(last).scalar_one_or_none()
    if written_at is None:
        return _table.id > cursor
    return _IN_ORDER.after(written_at, cursor)


def _revive(session: Session, destination_id: UUID, ids: Sequence[UUID]) -> int:
    """Make dead messages wait for an attempt again, in the order of `ids`. The caller must hold the order's lock."""
    if not ids:
        return 0
    values = {"destination": destination_id, "ids": [str(at) for at in ids], "held_until": FAR_FUTURE}
    count = session.execute(_REVIVE, values).rowcount
    release_next(session, destination_id)
    session.enqueue(SendDeliveries())
    return count
