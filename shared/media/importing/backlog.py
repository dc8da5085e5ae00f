"""Measure the backlog of imports. Operators use it to scale media workers and for alerts."""

from dataclasses import dataclass

from sqlalchemy import text

from shared.db.database import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportBacklog:
    """The number of due imports, and the age of the oldest due import in seconds."""

    due: int
    oldest_due_seconds: float


# Read the partial index of pending rows. Exclude imports whose next attempt is in the future or that have a valid
# lease: they are no backlog.
_BACKLOG = text(
    """
SELECT count(*) AS due, coalesce(extract(epoch FROM now() - min(due_at)), 0) AS oldest_due_seconds
FROM media_imports WHERE state IN ('Queued', 'Fetching') AND due_at <= now()
"""
)


def measure_imports(session: Session) -> ImportBacklog:
    """Return the number of due imports and the age of the oldest."""
    # This counts a range of the index and does not read the table, so it is cheap.
    row = session.execute(_BACKLOG).one()
    return ImportBacklog(due=row.due, oldest_due_seconds=float(row.oldest_due_seconds))
