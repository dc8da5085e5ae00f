"""Deliver ordered messages to a destination in order: the first is the head, and all others are held.

The head is the only ordered message of its destination that may be claimed. A message stays the head while it waits for
another attempt. When the head is delivered or given up, the first held message becomes the head. A held message is not
ready, and its `due_at` is the end of time, so no query for due messages finds it. A transaction that adds or ends an
ordered message first locks the destination's order until the commit, so a new message cannot miss the end of the head.
"""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, case, exists, func, literal, or_, select, text

from shared.db.advisory_locks import AdvisoryLock, take_for
from shared.db.database import Database, Session
from shared.deliveries.tables import deliveries

FAR_FUTURE = datetime(9999, 12, 31, tzinfo=UTC)
STALLED_LIMIT = 500

_table = deliveries.c
_HEAD = "place IS NOT NULL AND NOT is_held AND state IN ('Waiting', 'Sending')"
_RELEASE = text(
    f"""
UPDATE deliveries SET is_held = false, is_ready = true, due_at = clock_timestamp()
WHERE id = (SELECT id FROM deliveries WHERE destination_id = :destination AND is_held ORDER BY place LIMIT 1)
    AND NOT EXISTS (SELECT FROM deliveries WHERE destination_id = :destination AND {_HEAD})
"""  # noqa: S608 (a condition from the code)
)
_STALLED = text(
    f"""
SELECT DISTINCT destination_id FROM deliveries held
WHERE is_held AND NOT EXISTS (
    SELECT FROM deliveries WHERE destination_id = held.destination_id AND {_HEAD}
) LIMIT :limit
"""  # noqa: S608 (a condition from the code)
)


def lock_order(session: Session, destination_id: UUID) -> None:
    """Lock a destination's order until this transaction ends. Call this function before you lock rows of messages."""
    take_for(session, AdvisoryLock.DELIVERY_ORDER, destination_id)


def place_last(session: Session, destination_id: UUID) -> dict[str, ColumnElement[Any]]:
    """Return the column values of a new last message in an order; the message is the head if the order has none."""
    lock_order(session, destination_id)
    ours = _table.destination_id == destination_id
    last = select(func.max(_table.place)).where(ours, _table.place.is_not(None)).scalar_subquery()
    is_behind = or_(exists().where(ours, text(_HEAD)), exists().where(ours, _table.is_held))
    return {
        "place": func.coalesce(last, 0) + 1,
        "is_held": is_behind,
        "is_ready": ~is_behind,
        # Use clock_timestamp(): now() would be the same for all messages of one transaction, which would lose their
        # order.
        "due_at": case((is_behind, literal(FAR_FUTURE)), else_=func.clock_timestamp()),
    }


def release_next(session: Session, destination_id: UUID) -> None:
    """Make the destination's first held message the head, unless there is a head. The caller must hold the lock."""
    session.execute(_RELEASE, {"destination": destination_id})


def release_stalled(database: Database) -> int:
    """Release each order whose head was ended by a process of the previous release. Return the number of orders."""
    with database.autocommit() as session:
        stalled = session.execute(_STALLED, {"limit": STALLED_LIMIT}).scalars().all()
    for destination_id in stalled:
        # Check again under the lock: the result of the unlocked query may be out of date.
        with database.transaction() as session:
            lock_order(session, destination_id)
            release_next(session, destination_id)
    return len(stalled)
