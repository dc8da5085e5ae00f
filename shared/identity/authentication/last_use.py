"""Note when a credential was last used: at most once a minute each, from a thread, never failing a request.

A lost note costs nothing, so notes are dropped when the database does not answer and when the process ends.
"""

import threading
from uuid import UUID

from sqlalchemy import Table, func, or_, update

from shared.db.database import Database
from shared.errors import ServiceUnavailable
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

PENDING_LIMIT = 10_000


class LastUse:
    """Collects uses and writes them in batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: dict[tuple[str, UUID], Table] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._writer = PeriodicThread(
            self.flush, name="last-use", pause_seconds=0.0, has_work=lambda: self._pending
        )

    def note(self, table: Table, credential_id: UUID) -> None:
        """Record a use; returns at once."""
        with self._lock:
            if len(self._pending) < PENDING_LIMIT:
                self._pending[table.name, credential_id] = table
        self._writer.wake()

    def flush(self) -> None:
        """Write what is pending now, and wait for what the thread is writing."""
        with self._writing:
            with self._lock:
                pending, self._pending = self._pending, {}
            for table in {table.name: table for table in pending.values()}.values():
                self._write(table, [credential for name, credential in pending if name == table.name])

    def _write(self, table: Table, credential_ids: list[UUID]) -> None:
        a_minute_ago = func.now() - func.make_interval(0, 0, 0, 0, 0, 1)
        statement = (
            update(table)
            .where(table.c.id.in_(credential_ids))
            .where(or_(table.c.last_used_at.is_(None), table.c.last_used_at < a_minute_ago))
            .values(last_used_at=func.now())
        )
        try:
            with self._database.transaction() as session:
                session.execute(statement)
        except ServiceUnavailable as error:
            log.warning("last_use.not_written", table=table.name, error=str(error))
