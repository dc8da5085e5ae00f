"""Heartbeats: renew the leases of this process's turns, and stop turns that may not continue.

One thread serves all turns, over connections that no turn uses. It notices turns that were canceled, leased by another
worker or revoked, and those that exceeded their time limit.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from shared.a2a.agent_turns.leases import RENEWAL_SECONDS, Lease, TurnLeases
from shared.runtime.periodic_thread import InFlight

# The longest time until a cancellation or revocation stops a turn.
ROUND_SECONDS = 0.5


class StopReason(StrEnum):
    """Why a turn must end before its behavior has returned."""

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
        """Ask the turn to end; only the first reason counts."""
        # Set before the event: the turn's thread reads the reason once it sees the event.
        self.reason = self.reason or reason
        self.stopped.set()


class TurnHeartbeats:
    """The running turns of this process; the thread starts with the first."""

    def __init__(self, leases: TurnLeases, *, turn_seconds: float) -> None:
        """Create it without turns; `turn_seconds` is the time limit of each."""
        self._leases = leases
        self._turn_seconds = turn_seconds
        self._turns = InFlight({"turn-watch": self._check_turns}, pause_seconds=ROUND_SECONDS)
        self._renewed_at = time.monotonic()
        self._is_shutting_down = False

    @contextmanager
    def watch(self, lease: Lease) -> Iterator[WatchedTurn]:
        """Keep the lease of a turn alive within the block."""
        with self._turns.track(WatchedTurn(lease, self._turn_seconds)) as watched:
            # Checked after the turn is registered: either shut_down() finds the turn, or this check finds the shutdown.
            if self._is_shutting_down:
                watched.stop(StopReason.SHUTDOWN)
            yield watched

    def shut_down(self) -> None:
        """Ask all turns to end, and those that are about to start: the process stops."""
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
        # Checked each round, renewed less often: a check only reads.
        may_continue = self._leases.check(leases)
        for watched in watched_turns:
            if watched.lease.turn_id not in may_continue:
                watched.stop(StopReason.LOST)
            elif not may_continue[watched.lease.turn_id]:
                watched.stop(StopReason.REVOKED)
