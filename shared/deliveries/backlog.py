"""Measure the outbox's backlog and dead letters, for operators' alerts."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryBacklog:
    """The number of due messages, the age in seconds of the oldest due message, and the number of dead messages."""

    due: int
    oldest_due_seconds: float
    dead: int


# Both subqueries read partial indexes. Exclude messages whose next attempt is in the future, or whose endpoint is
# disabled: they are no backlog.
_BACKLOG = text(
    """
SELECT count(*) AS due, coalesce(extract(epoch FROM now() - min(due_at)), 0) AS oldest_due_seconds,
    (SELECT count(*) FROM deliveries WHERE state = 'Dead' AND last_code IS DISTINCT FROM 'endpoint_disabled') AS dead
FROM deliveries WHERE state IN ('Waiting', 'Sending') AND due_at <= now()
"""
)


def measure_deliveries(session: Session) -> DeliveryBacklog:
    """Count due and dead messages."""
    row = session.execute(_BACKLOG).one()
    return DeliveryBacklog(due=row.due, oldest_due_seconds=float(row.oldest_due_seconds), dead=row.dead)
