"""A deadline for a whole request, from name resolution to the last byte, and a minimum rate.

Socket timeouts restart with every byte, so a timer shuts the connection down at the deadline, or as soon as the
source falls below its rate. A thread that watches many exchanges may replace the timer. `http.client` takes a
truncated header block for a complete one: call `check` before trusting what was read.
"""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from shared.egress.errors import FetchTimedOut


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """The slowest rate allowed: no limit for `grace_seconds`, then a minimum average."""

    grace_seconds: float
    minimum_bytes_per_second: int

    def seconds_for(self, received_bytes: int) -> float:
        """Return the seconds within which this many bytes must have arrived and more follow."""
        return self.grace_seconds + received_bytes / self.minimum_bytes_per_second


class Deadline:
    """The time limit of a request, used as a context manager."""

    def __init__(self, seconds: float, pace: Pace | None = None, *, has_timer: bool = True) -> None:
        """Create a deadline. Without a timer another thread must call `abort_if_over` at short intervals."""
        self._has_timer = has_timer
        self._seconds = seconds
        self._pace = pace
        self._started_at = time.monotonic()
        self._received_bytes = 0
        self._processing_seconds = 0.0
        self._processing_since: float | None = None
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []
        self._has_passed = False
        self._is_over = False
        self.has_sent = False
        """Whether a byte of the request has been sent."""
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._started_at = time.monotonic()
        if self._has_timer:
            self._set_timer()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        with self._lock:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()
            for watched in self._watched:
                watched.close()
            self._watched.clear()

    @property
    def remaining_seconds(self) -> float:
        """The remaining time, always above 0: as a socket timeout 0 means non-blocking."""
        return max(self._ends_at - time.monotonic(), 0.001)

    def count(self, received_bytes: int) -> None:
        """Count received bytes, which extend the time that the pace allows."""
        self._received_bytes += received_bytes

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """Process received data during a block: the pace does not count this time, the deadline does."""
        self._processing_since = began = time.monotonic()
        try:
            yield
        finally:
            # In this order: for a moment the time counts twice for us, and never against the source.
            self._processing_seconds += time.monotonic() - began
            self._processing_since = None

    def check(self) -> None:
        """Raise FetchTimedOut if the time is over."""
        if self._has_passed:
            raise FetchTimedOut

    def watch(self, connection: socket.socket) -> None:
        """Shut this connection down when the time is over. Raises FetchTimedOut if it is already."""
        # A duplicate, because TLS detaches the descriptor from the socket that it wraps.
        duplicate = connection.dup()
        with self._lock:
            self._watched.append(duplicate)
        self.check()

    def abort_if_over(self) -> bool:
        """Abort the request if its time is over; return whether it is."""
        is_over = time.monotonic() >= self._ends_at
        if is_over:
            self.abort()
        return is_over

    def abort(self) -> None:
        """End the time now, from another thread; the reading thread gets FetchTimedOut."""
        with self._lock:
            self._has_passed = True
            for watched in self._watched:
                with contextlib.suppress(OSError):
                    # shutdown() and not close(), which would not wake the thread that reads.
                    watched.shutdown(socket.SHUT_RDWR)

    @property
    def _ends_at(self) -> float:
        seconds = self._seconds
        if self._pace is not None:
            seconds = min(seconds, self._pace.seconds_for(self._received_bytes) + self._work_seconds())
        return self._started_at + seconds

    def _work_seconds(self) -> float:
        since = self._processing_since
        return self._processing_seconds + (0.0 if since is None else time.monotonic() - since)

    def _set_timer(self) -> None:
        with self._lock:
            if not self._is_over:
                self._timer = threading.Timer(self.remaining_seconds, self._on_timer)
                # A pending timer must not keep the process alive.
                self._timer.daemon = True
                self._timer.start()

    def _on_timer(self) -> None:
        """Abort, or set the timer again if bytes that arrived meanwhile have extended the time."""
        if not self.abort_if_over():
            self._set_timer()
