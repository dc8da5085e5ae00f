"""Find the messages that are due, those that wait longest first, and none whose destination is busy enough.

The oldest due messages are looked at through one index, which costs the same however many wait. Only when too many of
these wait for busy destinations is each destination with open messages asked for its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import text

from shared.database import Session

WINDOW = 500
"""Messages that are looked at before each destination is asked."""

_OLDEST = text(
    """
WITH oldest AS (
    SELECT id, destination_id, due_at, in_flight_limit FROM deliveries
    WHERE state IN ('Waiting', 'Sending') AND due_at <= now()
    ORDER BY due_at LIMIT :window
), placed AS (
    SELECT *, row_number() OVER (PARTITION BY destination_id ORDER BY due_at, id) AS place FROM oldest
), busy AS (
    SELECT destination_id, count(*) AS under_way FROM deliveries
    WHERE state = 'Sending' AND due_at > now() GROUP BY destination_id
)
SELECT count(*) AS seen, array_agg(id ORDER BY due_at, id) FILTER (
    WHERE coalesce(under_way, 0) + place <= in_flight_limit
) AS ids
FROM placed LEFT JOIN busy USING (destination_id)
"""
)
_BY_DESTINATION = text(
    """
WITH RECURSIVE destinations AS (
    (SELECT destination_id FROM deliveries WHERE state IN ('Waiting', 'Sending') ORDER BY destination_id LIMIT 1)
    UNION ALL
    SELECT (
        SELECT next.destination_id FROM deliveries next
        WHERE next.state IN ('Waiting', 'Sending') AND next.destination_id > destinations.destination_id
        ORDER BY next.destination_id LIMIT 1
    )
    FROM destinations WHERE destinations.destination_id IS NOT NULL
)
SELECT head.id FROM destinations
CROSS JOIN LATERAL (
    SELECT count(*) AS under_way FROM deliveries busy
    WHERE busy.destination_id = destinations.destination_id AND busy.state = 'Sending' AND busy.due_at > now()
) busy
CROSS JOIN LATERAL (
    SELECT open.id, open.due_at, open.in_flight_limit, row_number() OVER (ORDER BY open.due_at, open.id) AS place
    FROM deliveries open
    WHERE open.destination_id = destinations.destination_id AND open.state IN ('Waiting', 'Sending')
        AND open.due_at <= now()
    ORDER BY open.due_at, open.id LIMIT 16
) head
WHERE busy.under_way + head.place <= head.in_flight_limit
ORDER BY head.due_at LIMIT :limit
"""
)


def find_due(session: Session, *, limit: int) -> Sequence[UUID]:
    """Name so many messages at most that are due and whose destinations may have another one under way."""
    found = session.execute(_OLDEST, {"window": WINDOW}).one()
    ids: Sequence[UUID] = (found.ids or [])[:limit]
    if len(ids) == limit or found.seen < WINDOW:
        return ids
    # All of the window may belong to destinations that are busy; whoever else waits is behind it.
    return session.execute(_BY_DESTINATION, {"limit": limit}).scalars().all()
