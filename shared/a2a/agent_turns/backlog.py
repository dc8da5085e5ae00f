"""Measure the turns that wait for a worker: the numbers an operator is alarmed by."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBacklog:
    """How many turns wait, and for how long the first of them."""

    waiting: int
    oldest_seconds: float


# Reads the partial index of queued turns; one that waits for an earlier turn of its task is no backlog.
_BACKLOG = text(
    """
SELECT count(*) AS waiting, coalesce(extract(epoch FROM now() - min(created_at)), 0) AS oldest_seconds
FROM task_turns WHERE state = 'queued' AND is_next
"""
)


def measure_turns(session: Session) -> TurnBacklog:
    """Count what waits."""
    row = session.execute(_BACKLOG).one()
    return TurnBacklog(waiting=row.waiting, oldest_seconds=float(row.oldest_seconds))
