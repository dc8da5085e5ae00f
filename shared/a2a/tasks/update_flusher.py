"""Write buffered updates: one background thread for all turns of a process.

No turn may block the thread. If another transaction has locked a task, the task's updates are retried after a pause.
Updates that failed come last in the next round.
"""

import time
from collections.abc import Callable
from uuid import UUID

from shared.a2a.tasks.claimed_turns import ClaimedTurn
from shared.db.database import LockTimeout
from shared.errors import ServiceUnavailable
from shared.runtime.periodic_thread import PeriodicThread

PAUSE_SECONDS = 1.0
"""Between attempts while the database is unavailable."""
LOCKED_SECONDS = 0.5
"""Between attempts for a task that another transaction has locked."""


class UpdateFlusher:
    """The turns of a process that have buffered updates. The thread starts with the first of these turns."""

    def __init__(self, write: Callable[[ClaimedTurn], object], *, after_seconds: float) -> None:
        """Create a flusher that calls `write` for a turn `after_seconds` seconds after an update was buffered.

        `write` may raise ServiceUnavailable or LockTimeout.
        """
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
        """Schedule the buffered updates of a turn to be written; the caller holds the turn's lock."""
        self._turns[claimed.turn.id] = claimed
        self._thread.wake()

    def _write_all(self) -> None:
        """Write the buffered updates of all turns, after the batching delay. Raises ServiceUnavailable."""
        # Updates that arrive within this pause share one statement.
        time.sleep(self._after_seconds)
        for turn_id, claimed in list(self._turns.items()):
            if self._locked_until.get(turn_id, 0.0) > time.monotonic():
                continue
            # Skip a locked turn: its own thread is writing all buffered updates, and may be waiting for the task's row.
            if claimed.lock.acquire(blocking=False):
                try:
                    self._write_one(turn_id, claimed)
                finally:
                    claimed.lock.release()

    def _write_one(self, turn_id: UUID, claimed: ClaimedTurn) -> None:
        # Remove the turn before the write, so that an update that is buffered during the write adds the turn again.
        del self._turns[turn_id]
        self._locked_until.pop(turn_id, None)
        try:
            self._write(claimed)
        # Another transaction holds the task. Retry this turn later, so that other turns do not wait for the lock.
        except LockTimeout:
            self._turns[turn_id] = claimed
            self._locked_until[turn_id] = time.monotonic() + LOCKED_SECONDS
        except ServiceUnavailable:
            self._turns[turn_id] = claimed
            raise
