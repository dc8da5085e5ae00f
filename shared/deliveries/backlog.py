"""Measure what waits to be sent, and what was given up: the numbers an operator is alarmed by."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryBacklog:
    """How many messages are due, for how long the first of them, and how many were given up."""

    due: int
    oldest_due_seconds: float
    dead: int


# Each half reads its partial index; what waits for a later attempt, or for an endpoint to be enabled, is no backlog.
_BACKLOG = text(
    """
SELECT count(*) AS due, coalesce(extract(epoch FROM now() - min(due_at)), 0) AS oldest_due_seconds,
    (SELECT count(*) FROM deliveries WHERE state = 'Dead' AND last_code IS DISTINCT FROM 'endpoint_disabled') AS dead
FROM deliveries WHERE state IN ('Waiting', 'Sending') AND due_at <= now()
"""
)


def measure_deliveries(session: Session) -> DeliveryBacklog:
    """Count what is due and what was given up."""
    row = session.execute(_BACKLOG).one()
    return DeliveryBacklog(due=row.due, oldest_due_seconds=float(row.oldest_due_seconds), dead=row.dead)
