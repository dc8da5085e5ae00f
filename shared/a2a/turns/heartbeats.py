"""Heartbeats of turns: renew the leases of a worker process while its threads wait for models and for time to pass.

One thread goes round: it keeps all leases, and notices which turns were cancelled or taken away, which work for
somebody who has been disabled meanwhile, and which have run for too long. It asks of all turns at once, over
connections that no turn uses. When the process is asked to stop, turns have a while to end, and are then told to.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum

from shared.a2a.turns.leases import RENEWAL_SECONDS, Lease, TurnLeases
from shared.periodic_thread import PeriodicThread

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
        self._turns: set[WatchedTurn] = set()
        self._lock = threading.Lock()
        self._thread = PeriodicThread(
            self._look, name="turn-watch", pause_seconds=ROUND_SECONDS, has_work=lambda: self._turns
        )
        self._renewed_at = time.monotonic()
        self._is_shutting_down = False

    @contextmanager
    def watch(self, lease: Lease) -> Iterator[WatchedTurn]:
        """Watch a turn within the block."""
        watched = WatchedTurn(lease, self._turn_seconds)
        with self._lock:
            self._turns.add(watched)
            if self._is_shutting_down:
                watched.stop(StopReason.SHUTDOWN)
        self._thread.wake()
        try:
            yield watched
        finally:
            with self._lock:
                self._turns.discard(watched)

    def shut_down(self) -> None:
        """Tell every turn to end, and those that still begin: this process is about to end."""
        with self._lock:
            self._is_shutting_down = True
            turns = list(self._turns)
        for watched in turns:
            watched.stop(StopReason.SHUTDOWN)

    @property
    def running(self) -> int:
        """How many turns are under way."""
        return len(self._turns)

    def _look(self) -> None:
        with self._lock:
            turns = list(self._turns)
        if turns:
            self._look_after(turns)

    def _look_after(self, turns: Sequence[WatchedTurn]) -> None:
        now = time.monotonic()
        for watched in turns:
            if now > watched.ends_at:
                watched.stop(StopReason.DEADLINE)
        leases = [watched.lease for watched in turns]
        if now - self._renewed_at >= RENEWAL_SECONDS:
            self._leases.renew(leases)  # also of those that were told to end, until they have
            self._renewed_at = now
        may_go_on = self._leases.look(leases)
        for watched in turns:
            if watched.lease.turn_id not in may_go_on:
                watched.stop(StopReason.LOST)
            elif not may_go_on[watched.lease.turn_id]:
                watched.stop(StopReason.REVOKED)
