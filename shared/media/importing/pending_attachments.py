"""Mark imports for which a message waits, and wake a worker when such an import has ended.

The transaction that records the message sets a mark on the import's row. The transaction that ends the import reads the
mark, so the end of an import is never missed. The job only wakes a worker.
"""

from collections.abc import Collection
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select, update

from shared.db.database import Session
from shared.media.tables import media_imports
from shared.messaging.jobs import Job
from shared.messaging.queues import AGENTS

_table = media_imports.c


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteMessages(Job):
    """A message may be ready to be routed, because an import for which it waited, or an earlier message, has ended."""

    kind = "door.route_messages"
    queue = AGENTS
    spacing_seconds = 0.1


def await_imports(session: Session, import_ids: Collection[UUID]) -> bool:
    """Mark the imports that have not ended. Return whether any import was marked."""
    if not import_ids:
        return False
    waiting = update(media_imports).where(_table.id.in_(import_ids), _table.ended_at.is_(None))
    return session.execute(waiting.values(is_awaited=True)).rowcount > 0


def has_waiting(session: Session, import_ids: Collection[UUID]) -> bool:
    """Return whether at least one of the imports has not ended."""
    waiting = select(_table.id).where(_table.id.in_(import_ids), _table.ended_at.is_(None))
    return session.execute(waiting.limit(1)).one_or_none() is not None
