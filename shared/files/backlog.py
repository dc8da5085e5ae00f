"""Measure the rows that wait for a worker. Scaling and alerts use the result."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The number of rows in a state, and the age of the oldest row in seconds."""

    state: str
    rows: int
    oldest_seconds: float


# Each branch reads a partial index, which is as large as the backlog. Rows do not record when they were marked for
# deletion, so the age of that backlog is 0. The count of rows pending deletion includes versions of an ended file that
# are not marked yet.

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
    """Return, for the rows to place, remove, abort and expire, their number and the age of the oldest row."""
    return [
        Backlog(state=row.state, rows=row.rows, oldest_seconds=float(row.oldest_seconds or 0))
        for row in session.execute(_BACKLOG)
    ]
