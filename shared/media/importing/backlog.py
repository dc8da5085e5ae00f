"""Measure the backlog of imports, by which operators scale media workers and set alerts."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBacklog:
    """The number of due imports, and the age of the oldest."""

    due: int
    oldest_due_seconds: float


# Reads the partial index of pending rows. Imports with a later attempt, or under a valid lease, are no backlog.
_BACKLOG = text(
    """
SELECT count(*) AS due, coalesce(extract(epoch FROM now() - min(due_at)), 0) AS oldest_due_seconds
FROM media_imports WHERE state IN ('Queued', 'Fetching') AND due_at <= now()
"""
)


def measure_imports(session: Session) -> ImportBacklog:
    """Count the due imports."""
    # Counts of an index range; the table itself is not read.
    row = session.execute(_BACKLOG).one()
    return ImportBacklog(due=row.due, oldest_due_seconds=float(row.oldest_due_seconds))
