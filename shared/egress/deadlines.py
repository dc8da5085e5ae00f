"""A deadline for a whole request, from name resolution to the last byte, and a minimum rate of reception.

A socket timeout restarts with every byte. So a timer shuts the connection down at the deadline, or when the source
sends more slowly than the minimum rate. A thread that watches many exchanges may replace the timer. `http.client`
accepts a truncated header block as complete, so call `check` before you use a result.
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
    """The minimum rate: none for `grace_seconds`, and after that a minimum average."""

    grace_seconds: float
    minimum_bytes_per_second: int

    def seconds_for(self, received_bytes: int) -> float:
        """Return the seconds that a source may take if it has sent so many bytes; more bytes extend this time."""
        return self.grace_seconds + received_bytes / self.minimum_bytes_per_second


class Deadline:
    """The time limit of a request, used as a context manager."""

    def __init__(self, seconds: float, pace: Pace | None = None, *, has_timer: bool = True) -> None:
        """Create a deadline. Without a timer, another thread must call `abort_if_over` at short intervals."""
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
        """The remaining time. It is always greater than 0, because a socket timeout of 0 means non-blocking."""
        return max(self._ends_at - time.monotonic(), 0.001)

    def count(self, received_bytes: int) -> None:
        """Count received bytes. They extend the time that the minimum rate allows."""
        self._received_bytes += received_bytes

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """Process received data in a block.

        The minimum rate does not include the time of the block; the deadline does.
        """
        self._processing_since = began = time.monotonic()
        try:
            yield
        finally:
            # Add the time before the start is cleared: another thread may count the time twice for a moment, which
            # favours the source. In the other order, the time would count against the source.
            self._processing_seconds += time.monotonic() - began
            self._processing_since = None

    def check(self) -> None:
        """Raise FetchTimedOut if the deadline has passed or the source is too slow."""
        if self._has_passed:
            raise FetchTimedOut

    def watch(self, connection: socket.socket) -> None:
        """Shut this connection down when the time is over. Raises FetchTimedOut if the time is already over."""
        # Keep a duplicate of the socket, because TLS detaches the descriptor from the socket that it wraps.
        duplicate = connection.dup()
        with self._lock:
            self._watched.append(duplicate)
        self.check()

    def abort_if_over(self) -> bool:
        """Abort the request if its time is over. Return whether the time is over."""
        is_over = time.monotonic() >= self._ends_at
        if is_over:
            self.abort()
        return is_over

    def abort(self) -> None:
        """End the request's time now. Another thread calls this; the thread that reads gets FetchTimedOut."""
        with self._lock:
            self._has_passed = True
            for watched in self._watched:
                with contextlib.suppress(OSError):
                    # Call shutdown() and not close(): close() would not wake the thread that reads.
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
                # Make the timer a daemon thread, so that a pending timer does not keep the process alive.
                self._timer.daemon = True
                self._timer.start()

    def _on_timer(self) -> None:
        """Abort the request. If received bytes have extended the time, set the timer again instead."""
        if not self.abort_if_over():
            self._set_timer()
