"""Measure the backlog of turns: the numbers that alert an operator."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBacklog:
    """How many turns wait for a worker, and for how many seconds the oldest of them."""

    waiting: int
    oldest_seconds: float


# Reads the partial index of queued turns. A turn behind an earlier turn of its task waits for the agent, not for a
# worker.
_BACKLOG = text(
    """
SELECT count(*) AS waiting, coalesce(extract(epoch FROM now() - min(created_at)), 0) AS oldest_seconds
FROM task_turns WHERE state = 'queued' AND is_next
"""
)


def measure_turns(session: Session) -> TurnBacklog:
    """Return the number and the age of the turns that wait for a worker."""
    row = session.execute(_BACKLOG).one()
    return TurnBacklog(waiting=row.waiting, oldest_seconds=float(row.oldest_seconds))
