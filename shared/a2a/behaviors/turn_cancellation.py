"""Waiting that ends when nobody wants the turn any more."""

import time

from shared.a2a.agent_turns.updates import Turn

POLL_SECONDS = 0.05


class TurnCancellation:
    """A turn's cancellation in the form that calls to models ask for (`shared/models/providers/base.py`)."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    def is_set(self) -> bool:
        """Whether to stop."""
        return self._turn.is_cancelled()

    def wait(self, timeout: float | None = None, /) -> bool:
        """Sleep until it is cancelled or the time is over; return whether it is cancelled."""
        ends_at = None if timeout is None else time.monotonic() + timeout
        while not self._turn.is_cancelled():
            left = POLL_SECONDS if ends_at is None else ends_at - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, POLL_SECONDS))
        return True
