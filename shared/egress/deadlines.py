"""One bound on the whole of a request, from the first look at a name to the last byte.

Timeouts of a socket begin anew with every byte, and one byte every nine seconds never ends. So a timer shuts the
connection when the time is over, whoever waits on it. `http.client` then takes a header block that was cut off for a
whole one: nothing that was read may be believed before `check` has been asked.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from types import TracebackType
from typing import Self

from shared.egress.errors import FetchTimedOut


class Deadline:
    """The time a request has, while it is a context."""

    def __init__(self, seconds: float) -> None:
        """Take how long the request may last from the moment the context is entered."""
        self._seconds = seconds
        self._ends_at = time.monotonic() + seconds
        self._lock = threading.Lock()
        self._watched: list[socket.socket] = []
        self._has_passed = False
        self._timer = threading.Timer(seconds, self._pass)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        """Start the clock."""
        self._ends_at = time.monotonic() + self._seconds
        self._timer.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        """Stop the clock."""
        self._timer.cancel()
        with self._lock:
            for watched in self._watched:
                watched.close()
            self._watched.clear()

    @property
    def has_passed(self) -> bool:
        """Whether the time is over."""
        return self._has_passed

    @property
    def remaining_seconds(self) -> float:
        """The time that is left, more than nothing."""
        return max(self._ends_at - time.monotonic(), 0.001)

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

    def _pass(self) -> None:
        self._has_passed = True
        with self._lock:
            for watched in self._watched:
                with contextlib.suppress(OSError):
                    watched.shutdown(socket.SHUT_RDWR)
