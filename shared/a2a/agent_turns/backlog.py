"""Measure the backlog of turns. Alerts for operators use these numbers."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBacklog:
    """The number of turns that wait for a worker, and the age of the oldest waiting turn in seconds."""

    waiting: int
    oldest_seconds: float


# Reads the partial index of queued turns. A turn behind an earlier turn of its task waits for the agent and not for a
# worker, so it is not counted.
_BACKLOG = text(
    """
SELECT count(*) AS waiting, coalesce(extract(epoch FROM now() - min(created_at)), 0) AS oldest_seconds
FROM task_turns WHERE state = 'queued' AND is_next
"""
)


def measure_turns(session: Session) -> TurnBacklog:
    """Return the number of turns that wait for a worker, and the age of the oldest waiting turn."""
    row = session.execute(_BACKLOG).one()
    return TurnBacklog(waiting=row.waiting, oldest_seconds=float(row.oldest_seconds))
