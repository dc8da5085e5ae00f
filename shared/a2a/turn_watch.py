"""Look after the turns of a worker process while their threads wait for models and for time to pass.

One thread goes round: it keeps each turn's lease, and notices that a turn was cancelled, taken away, or has run for
too long. When the process is asked to stop, turns have a while to end, and are then told to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum

from shared.a2a.task_log import ClaimedTurn, TaskLog, TurnLost
from shared.errors import DomainError
from shared.telemetry import get_logger

log = get_logger(__name__)

ROUND_SECONDS = 0.25
RENEWAL_SECONDS = 10.0


class StopReason(StrEnum):
    """Why a turn is to end before its behavior has."""

    LOST = "lost"
    DEADLINE = "deadline"
    SHUTDOWN = "shutdown"


class WatchedTurn:
    """A turn under way, as its own thread and the watch share it."""

    def __init__(self, claimed: ClaimedTurn, turn_seconds: float) -> None:
        """Made by `TurnWatch.watch`."""
        self.claimed = claimed
        self.stopped = threading.Event()
        self.reason: StopReason | None = None
        self.ends_at = time.monotonic() + turn_seconds
        self.renewed_at = time.monotonic()
        self.is_cancelled = claimed.turn.is_cancelled

    def stop(self, reason: StopReason) -> None:
        """Tell the turn to end; the first reason stands."""
        self.reason = self.reason or reason
        self.stopped.set()


class TurnWatch:
    """The turns of this process; the thread begins with the first."""

    def __init__(self, task_log: TaskLog, *, turn_seconds: float) -> None:
        """Look after nothing yet; no turn may take longer than this."""
        self._log = task_log
        self._turn_seconds = turn_seconds
        self._turns: set[WatchedTurn] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._is_shutting_down = False

    @contextmanager
    def watch(self, claimed: ClaimedTurn) -> Iterator[WatchedTurn]:
        """Look after a turn within the block."""
        watched = WatchedTurn(claimed, self._turn_seconds)
        with self._lock:
            self._turns.add(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="turn-watch", daemon=True)
                self._thread.start()
            if self._is_shutting_down:
                watched.stop(StopReason.SHUTDOWN)
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

    def _run(self) -> None:
        while True:
            time.sleep(ROUND_SECONDS)
            with self._lock:
                turns = list(self._turns)
            for watched in turns:
                try:
                    self._look_after(watched)
                except Exception:  # the other turns must be looked after whatever became of this one
                    log.exception("turn.not_looked_after", turn_id=watched.claimed.turn.id)

    def _look_after(self, watched: WatchedTurn) -> None:
        now = time.monotonic()
        if watched.stopped.is_set():
            return
        if watched.is_cancelled():
            watched.stop(StopReason.LOST)
        elif now > watched.ends_at:
            watched.stop(StopReason.DEADLINE)
        elif now - watched.renewed_at > RENEWAL_SECONDS:
            self._renew(watched)

    def _renew(self, watched: WatchedTurn) -> None:
        try:
            self._log.renew(watched.claimed)
            watched.renewed_at = time.monotonic()
        except TurnLost:
            watched.stop(StopReason.LOST)
        except DomainError as error:
            log.warning("turn.not_renewed", turn_id=watched.claimed.turn.id, error=error.code)
