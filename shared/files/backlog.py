"""Measure the rows that wait for a worker: the figures for scaling and for alerts."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """How many rows are in a state, and the age of the oldest in seconds."""

    state: str
    rows: int
    oldest_seconds: float


# Each branch reads its partial index, which is as large as the backlog. No row has the time at which it was marked for
# deletion, so that age is 0. Versions of an ended file that are not marked yet are counted with those that are.

_BACKLOG = text(
    """
SELECT 'staged' AS state, count(*) AS rows, extract(epoch FROM now() - min(created_at)) AS oldest_seconds
FROM blobs WHERE state = 'staged'
UNION ALL
SELECT 'doomed', count(*) + (
    SELECT coalesce(sum(coalesce(file.revision, 1) - ended.doomed_to), 0)
    FROM ended_content AS ended LEFT JOIN files AS file ON file.id = ended.id
), 0
FROM blobs WHERE state = 'doomed'
UNION ALL
SELECT 'receiving', count(*), extract(epoch FROM now() - min(created_at)) FROM blobs WHERE state = 'receiving'
UNION ALL
SELECT 'due', count(*), extract(epoch FROM now() - min(retention_expires_at))
FROM files WHERE state = 'Available' AND retention_expires_at <= now()
"""
)


def measure_backlog(session: Session) -> list[Backlog]:
    """Return the number of rows to place, remove, abort or expire, and the oldest of each."""
    return [
        Backlog(state=row.state, rows=row.rows, oldest_seconds=float(row.oldest_seconds or 0))
        for row in session.execute(_BACKLOG)
    ]
