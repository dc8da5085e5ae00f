"""Whether the calls that are silent still have a worker: asked of Postgres for all of them at once.

A front may hold thousands of calls that wait, and each is looked at every two seconds: one statement a second tells of
all, and nobody who asks waits for it. The thread begins with the first question and rests while there is none.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from uuid import UUID

from shared.credits.holds import Lease, read_leases
from shared.database import Database
from shared.errors import DomainError
from shared.telemetry import get_logger

log = get_logger(__name__)

READ_SECONDS = 1.0
KNOWN_SECONDS = 3.0
READ_AT_ONCE = 5000


class LeaseReader:
    """The leases of one process's silent calls; safe to share between threads."""

    def __init__(self, database: Database) -> None:
        """Ask nothing yet."""
        self._database = database
        self._asked_at: dict[UUID, float] = {}
        self._known: dict[UUID, Lease] = {}
        self._read_at = float("-inf")
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def find(self, invocation_id: UUID) -> Lease | None:
        """Give a call's lease as it was a moment ago; None while it is not known. Ask again in a while."""
        now = time.monotonic()
        with self._changed:
            self._asked_at[invocation_id] = now
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lease-reader", daemon=True)
                self._thread.start()
            self._changed.notify()
            age = now - self._read_at
            lease = self._known.get(invocation_id) if age < KNOWN_SECONDS else None
        return replace(lease, remaining_seconds=lease.remaining_seconds - age) if lease is not None else None

    def _run(self) -> None:
        pause = threading.Event()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._asked_at)
                since = time.monotonic() - 3 * KNOWN_SECONDS
                self._asked_at = {at: asked for at, asked in self._asked_at.items() if asked > since}
                asked = list(self._asked_at)
            try:
                self._read(asked)
            except DomainError as error:
                log.warning("leases.not_read", error=error.code)
            except Exception:  # without its reader a front would wait for dead workers
                log.exception("leases.misread")
            pause.wait(READ_SECONDS)

    def _read(self, asked: list[UUID]) -> None:
        known: dict[UUID, Lease] = {}
        with self._database.autocommit() as session:
            for start in range(0, len(asked), READ_AT_ONCE):
                known |= read_leases(session, asked[start : start + READ_AT_ONCE])
        with self._changed:
            self._known, self._read_at = known, time.monotonic()
