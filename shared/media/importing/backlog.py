"""Measure what waits to be imported: the number an operator scales media workers by and is alarmed by."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBacklog:
    """How many imports are due, and for how long the first of them."""

    due: int
    oldest_due_seconds: float


# Reads the partial index of what waits; later attempts and imports being fetched are no backlog.
_BACKLOG = text(
    """
SELECT count(*) AS due, coalesce(extract(epoch FROM now() - min(due_at)), 0) AS oldest_due_seconds
FROM media_imports WHERE state IN ('Queued', 'Fetching') AND due_at <= now()
"""
)


def measure_imports(session: Session) -> ImportBacklog:
    """Count what is due."""
    row = session.execute(_BACKLOG).one()
    return ImportBacklog(due=row.due, oldest_due_seconds=float(row.oldest_due_seconds))
