"""A deadline for the whole of a request, from the name's resolution to the last byte, and a lowest pace.

Socket timeouts begin anew with every byte, so a timer shuts the connection at the deadline, or as soon as the source
falls behind its pace; a thread that looks after many exchanges may take the timer's place. `http.client` takes a header
block that was cut off for a whole one: call `check` before believing what was read.
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
    """How slow a source may be: the time it has for nothing, and the lowest rate from then on."""

    grace_seconds: float
    minimum_bytes_per_second: int

    def seconds_for(self, received_bytes: int) -> float:
        """Give the time in which so much must have arrived, and more be on its way."""
        return self.grace_seconds + received_bytes / self.minimum_bytes_per_second


class Deadline:
    """The time a request has, while it is a context."""

    def __init__(self, seconds: float, pace: Pace | None = None, *, has_timer: bool = True) -> None:
        """Without a timer, another thread must call `look` every moment."""
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
        """Whether a byte of the request has left."""
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
        """The time that is left, more than nothing."""
        return max(self._ends_at - time.monotonic(), 0.001)

    def count(self, received_bytes: int) -> None:
        """Count bytes that have arrived: they extend the deadline for the next ones."""
        self._received_bytes += received_bytes

    @contextlib.contextmanager
    def processing(self) -> Iterator[None]:
        """Work on what has arrived: the source's pace does not count the time, the deadline does."""
        self._processing_since = began = time.monotonic()
        try:
            yield
        finally:
            # In this order: for a moment it counts twice, and never as the source's.
            self._processing_seconds += time.monotonic() - began
            self._processing_since = None

    def check(self) -> None:
        """Raise FetchTimedOut when the time is over."""
        if self._has_passed:
            raise FetchTimedOut

    def watch(self, connection: socket.socket) -> None:
        """Shut this connection when the time is over. Raises FetchTimedOut when it already is."""
        # A duplicate, because TLS takes the descriptor out of the socket that it wraps.
        duplicate = connection.dup()
        with self._lock:
            self._watched.append(duplicate)
        self.check()

    def abort_if_over(self) -> bool:
        """End the request if its time is over; return whether it is."""
        is_over = time.monotonic() >= self._ends_at
        if is_over:
            self.abort()
        return is_over

    def abort(self) -> None:
        """End the time now, from another thread: the one that reads gets FetchTimedOut."""
        with self._lock:
            self._has_passed = True
            for watched in self._watched:
                with contextlib.suppress(OSError):
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
                self._timer.daemon = True
                self._timer.start()

    def _on_timer(self) -> None:
        """Look; bytes that arrived meanwhile may have extended the time."""
        if not self.abort_if_over():
            self._set_timer()
