"""Heartbeats: renew the leases of this process's turns, and stop turns that may not continue.

One thread serves all turns, over its own database connections. The thread stops a turn if the turn was canceled, was
leased by another worker, lost its permission or exceeded its time limit.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from shared.a2a.turn_state.leases import RENEWAL_SECONDS, Lease, TurnLeases
from shared.runtime.periodic_thread import InFlight

# The longest time until a cancellation or revocation stops a turn.
ROUND_SECONDS = 0.5


class StopReason(StrEnum):
    """The reason why a turn must end before its behavior has returned."""

    LOST = "lost"
    REVOKED = "revoked"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"


class WatchedTurn:
    """A running turn, shared by its own thread and the heartbeat thread."""

    def __init__(self, lease: Lease, turn_seconds: float) -> None:
        self.lease = lease
        self.stopped = threading.Event()
        self.reason: StopReason | None = None
        self.ends_at = time.monotonic() + turn_seconds

    def stop(self, reason: StopReason) -> None:
        """Ask the turn to end. If `stop` is called again, the first reason is kept."""
        # Set the reason before the event: the turn's thread reads the reason when it sees the event.
        self.reason = self.reason or reason
        self.stopped.set()


class TurnHeartbeats:
    """The running turns of this process. The heartbeat thread starts with the first turn."""

    def __init__(self, leases: TurnLeases, *, turn_seconds: float) -> None:
        """Create the heartbeats of a process; `turn_seconds` is the time limit of each turn."""
        self._leases = leases
        self._turn_seconds = turn_seconds
        self._turns = InFlight({"turn-watch": self._check_turns}, pause_seconds=ROUND_SECONDS)
        self._renewed_at = time.monotonic()
        self._is_shutting_down = False

    @contextmanager
    def watch(self, lease: Lease) -> Iterator[WatchedTurn]:
        """Keep the lease of a turn alive within the block."""
        with self._turns.track(WatchedTurn(lease, self._turn_seconds)) as watched:
            # Check after the turn is registered: either shut_down() finds the turn, or this check finds the shutdown.
            if self._is_shutting_down:
                watched.stop(StopReason.SHUTDOWN)
            yield watched

    def shut_down(self) -> None:
        """Ask all running turns to end, and all turns that start later, because the process stops."""
        self._is_shutting_down = True
        for watched in self._turns.all():
            watched.stop(StopReason.SHUTDOWN)

    @property
    def running(self) -> int:
        """The number of running turns."""
        return len(self._turns)

    def _check_turns(self, watched_turns: Sequence[WatchedTurn]) -> None:
        now = time.monotonic()
        for watched in watched_turns:
            if now > watched.ends_at:
                watched.stop(StopReason.DEADLINE)
        leases = [watched.lease for watched in watched_turns]
        if now - self._renewed_at >= RENEWAL_SECONDS:
            self._leases.renew(leases)  # of stopping turns too: their last updates need the lease
            self._renewed_at = now
        # A check only reads, so leases are checked in each round but renewed less often.
        may_continue = self._leases.check(leases)
        for watched in watched_turns:
            if watched.lease.turn_id not in may_continue:
                watched.stop(StopReason.LOST)
            elif not may_continue[watched.lease.turn_id]:
                watched.stop(StopReason.REVOKED)
