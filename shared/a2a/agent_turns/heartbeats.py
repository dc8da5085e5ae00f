"""Heartbeats of turns: renew the leases of a worker process while its threads wait for models and for time to pass.

One thread keeps all leases, and notices which turns were cancelled, taken away or revoked, and which have run for too
long, over connections that no turn uses.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from shared.a2a.agent_turns.leases import RENEWAL_SECONDS, Lease, TurnLeases
from shared.runtime.periodic_thread import InFlight

ROUND_SECONDS = 0.5


class StopReason(StrEnum):
    """Why a turn is to end before its behavior has."""

    LOST = "lost"
    REVOKED = "revoked"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"


class WatchedTurn:
    """A turn under way, as its own thread and the watch share it."""

    def __init__(self, lease: Lease, turn_seconds: float) -> None:
        self.lease = lease
        self.stopped = threading.Event()
        self.reason: StopReason | None = None
        self.ends_at = time.monotonic() + turn_seconds

    def stop(self, reason: StopReason) -> None:
        """Tell the turn to end; the first reason stands."""
        self.reason = self.reason or reason
        self.stopped.set()


class TurnHeartbeats:
    """The turns of this process; the thread begins with the first."""

    def __init__(self, leases: TurnLeases, *, turn_seconds: float) -> None:
        """Start without turns; none may take longer than this."""
        self._leases = leases
        self._turn_seconds = turn_seconds
        self._turns = InFlight({"turn-watch": self._check_turns}, pause_seconds=ROUND_SECONDS)
        self._renewed_at = time.monotonic()
        self._is_shutting_down = False

    @contextmanager
    def watch(self, lease: Lease) -> Iterator[WatchedTurn]:
        """Watch a turn within the block."""
        with self._turns.track(WatchedTurn(lease, self._turn_seconds)) as watched:
            # Asked once the turn is among those that `shut_down` tells: one of the two sees the other.
            if self._is_shutting_down:
                watched.stop(StopReason.SHUTDOWN)
            yield watched

    def shut_down(self) -> None:
        """Tell every turn to end, and those that still begin: this process is about to end."""
        self._is_shutting_down = True
        for watched in self._turns.all():
            watched.stop(StopReason.SHUTDOWN)

    @property
    def running(self) -> int:
        """How many turns are under way."""
        return len(self._turns)

    def _check_turns(self, watched_turns: Sequence[WatchedTurn]) -> None:
        now = time.monotonic()
        for watched in watched_turns:
            if now > watched.ends_at:
                watched.stop(StopReason.DEADLINE)
        leases = [watched.lease for watched in watched_turns]
        if now - self._renewed_at >= RENEWAL_SECONDS:
            self._leases.renew(leases)  # also of those that were told to end, until they have
            self._renewed_at = now
        may_continue = self._leases.check(leases)
        for watched in watched_turns:
            if watched.lease.turn_id not in may_continue:
                watched.stop(StopReason.LOST)
            elif not may_continue[watched.lease.turn_id]:
                watched.stop(StopReason.REVOKED)
