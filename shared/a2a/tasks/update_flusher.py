"""Write what was held back to be written with what follows it: one thread for all turns of a process.

So no turn may keep it: what another writer of a task holds is tried again after a pause, and what fails comes last of
the next round.
"""

import time
from collections.abc import Callable
from uuid import UUID

from shared.a2a.tasks.claimed_turns import ClaimedTurn
from shared.db.database import LockTimeout
from shared.errors import ServiceUnavailable
from shared.runtime.periodic_thread import PeriodicThread

PAUSE_SECONDS = 1.0
"""Between attempts while the database does not answer."""
LOCKED_SECONDS = 0.5
"""Between attempts at a task that another writer holds."""


class UpdateFlusher:
    """The turns of a process that have said what is not written yet; the thread begins with the first."""

    def __init__(self, write: Callable[[ClaimedTurn], object], *, after_seconds: float) -> None:
        """Write so long after the first was said, with a function that raises Unavailable or LockTimeout."""
        self._write = write
        self._after_seconds = after_seconds
        self._turns: dict[UUID, ClaimedTurn] = {}
        self._locked_until: dict[UUID, float] = {}
        self._thread = PeriodicThread(
            self._write_all,
            name="late-updates",
            pause_seconds=0.0,
            pause_after_failure_seconds=PAUSE_SECONDS,
            has_work=lambda: self._turns,
        )

    def add(self, claimed: ClaimedTurn) -> None:
        """Write what is pending of a turn soon; the caller holds its lock."""
        self._turns[claimed.turn.id] = claimed
        self._thread.wake()

    def _write_all(self) -> None:
        """Write what was held back, once the first of it has waited. Raises ServiceUnavailable."""
        time.sleep(self._after_seconds)
        for turn_id, claimed in list(self._turns.items()):
            if self._locked_until.get(turn_id, 0.0) > time.monotonic():
                continue
            # Its own thread has the lock while it writes all that is pending, and may wait for the task.
            if claimed.lock.acquire(blocking=False):
                try:
                    self._write_one(turn_id, claimed)
                finally:
                    claimed.lock.release()

    def _write_one(self, turn_id: UUID, claimed: ClaimedTurn) -> None:
        del self._turns[turn_id]
        self._locked_until.pop(turn_id, None)
        try:
            self._write(claimed)
        except LockTimeout:
            self._turns[turn_id] = claimed
            self._locked_until[turn_id] = time.monotonic() + LOCKED_SECONDS
        except ServiceUnavailable:
            self._turns[turn_id] = claimed
            raise
