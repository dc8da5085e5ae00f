"""Record when each credential was last used, from a background thread and at most once a minute per credential.

The time is informative only. Pending uses are dropped if the database is unavailable or the process ends.
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
"""Uses that wait to be written; further ones are dropped while the database is slow."""


class LastUse:
    """Collects uses of credentials and writes these uses in batches."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._pending: dict[tuple[str, UUID], Table] = {}
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._writer = PeriodicThread(
            self.flush, name="last-use", pause_seconds=0.0, has_work=lambda: self._pending
        )

    def record(self, table: Table, credential_id: UUID) -> None:
        """Queue a use for writing, without blocking."""
        with self._lock:
            if len(self._pending) < PENDING_LIMIT:
                self._pending[table.name, credential_id] = table
        self._writer.wake()

    def flush(self) -> None:
        """Write all pending uses. If the background thread is writing, wait until it has finished."""
        with self._writing:
            with self._lock:
                pending, self._pending = self._pending, {}
            for table in {table.name: table for table in pending.values()}.values():
                self._write(table, [credential for name, credential in pending if name == table.name])

    def _write(self, table: Table, credential_ids: list[UUID]) -> None:
        # Check the interval again: other processes may have recorded a use of the same credential meanwhile.
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
