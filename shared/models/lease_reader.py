"""Whether the calls that are silent still have a worker: one statement a second asks Postgres for all of them.

Nobody who asks waits for it. The thread begins with the first question and rests while there is none.
"""

import threading
import time
from dataclasses import replace
from uuid import UUID

from shared.credits.holds import Lease, read_leases
from shared.database import Database
from shared.periodic_thread import PeriodicThread

READ_SECONDS = 1.0
KNOWN_SECONDS = 3.0
READ_AT_ONCE = 5000


class LeaseReader:
    """The leases of one process's silent calls; safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asked_at: dict[UUID, float] = {}
        self._known: dict[UUID, Lease] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()
        self._reader = PeriodicThread(
            self._read, name="lease-reader", pause_seconds=READ_SECONDS, has_work=lambda: self._asked_at
        )

    def find(self, invocation_id: UUID) -> Lease | None:
        """Give a call's lease as it was a moment ago; None while it is not known. Ask again in a while."""
        now = time.monotonic()
        with self._lock:
            self._asked_at[invocation_id] = now
        self._reader.wake()
        with self._lock:
            age = now - self._read_at
            lease = self._known.get(invocation_id) if age < KNOWN_SECONDS else None
        return replace(lease, remaining_seconds=lease.remaining_seconds - age) if lease is not None else None

    def close(self) -> None:
        """Ask no more, before the database goes."""
        self._reader.stop(wait=True)

    def _read(self) -> None:
        with self._lock:
            since = time.monotonic() - 3 * KNOWN_SECONDS
            self._asked_at = {at: asked for at, asked in self._asked_at.items() if asked > since}
            asked = list(self._asked_at)
        known: dict[UUID, Lease] = {}
        with self._database.autocommit() as session:
            for start in range(0, len(asked), READ_AT_ONCE):
                known |= read_leases(session, asked[start : start + READ_AT_ONCE])
        with self._lock:
            self._known, self._read_at = known, time.monotonic()
