"""Wait for a number of seconds, or until a turn is canceled."""

import time

from shared.a2a.updates import Turn

POLL_SECONDS = 0.05


class TurnCancellation:
    """A turn's cancellation, with the interface that model calls expect (`shared/models/providers/base.py`)."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def is_set(self) -> bool:
        """Return whether the turn is canceled."""
        return self._turn.is_cancelled()

    def wait(self, timeout: float | None = None, /) -> bool:
        """Sleep until the turn is canceled or the time is over. Return whether it is canceled."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        while not self._turn.is_cancelled():
            left = POLL_SECONDS if ends_at is None else ends_at - time.monotonic()
            if left <= 0:
                return False
            # Poll, because `is_cancelled` is a function and not an event on which a thread can wait.
            time.sleep(min(left, POLL_SECONDS))
        return True
