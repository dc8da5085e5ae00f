"""Timeouts and cancellation of upstream calls. A call that exceeds a timeout or has lost its client is cut.

A socket's own timeout restarts with every byte, and a thread that blocks in a read cannot be interrupted. So one thread
of the process watches all calls. To cut a call, this thread shuts the call's socket down and records a `Reason`; the
thread that reads the socket then raises the error of this reason.

The idle timeout runs only while a reader waits for bytes and no bytes have arrived. A busy reader, or a process that
was suspended, must not abort a paid response.
"""

import math
import threading
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Self

from shared.models.providers.base import Cancellation
from shared.models.providers.errors import CallCancelled, ProviderError, ProviderTimeout
from shared.runtime.periodic_thread import PeriodicThread

CHECK_INTERVAL_SECONDS = 0.1


class Reason(StrEnum):
    """Why a call was cut."""

    FIRST_BYTE = "The provider did not begin its response in time."
    SILENCE = "The provider stopped in the middle of its response."
    DEADLINE = "The provider did not finish its response in time."
    CANCELLED = "The call was cancelled."


class Call:
    """A call that the watchdog watches, from before the connection is made until the last byte was read."""

    __slots__ = (
        "_cancelled",
        "_cut",
        "_deadline_at",
        "_idle_expires_at",
        "_idle_seconds",
        "_is_released",
        "_lock",
        "_timeout_reason",
        "_unread",
        "is_sent",
        "is_unacknowledged",
        "reason",
    )

    def __init__(
        self,
        *,
        cancelled: Cancellation,
        deadline_at: float,
        first_byte_timeout_seconds: float,
        idle_timeout_seconds: float,
    ) -> None:
        """Create the call and start the timeout for the response's first byte."""
        self._cancelled = cancelled
        self._deadline_at = deadline_at
        self._idle_seconds = idle_timeout_seconds
        self._idle_expires_at = time.monotonic() + first_byte_timeout_seconds
        self._timeout_reason = Reason.FIRST_BYTE
        self._lock = threading.Lock()
        self._cut: Callable[[], object] | None = None
        self._unread: Callable[[], bool] = lambda: False
        self._is_released = False
        self.is_sent = False
        self.is_unacknowledged = False
        """Whether the connection broke before the upstream had acknowledged a byte of the request."""
        self.reason: Reason | None = None

    def attach(self, cut: Callable[[], object], has_unread_bytes: Callable[[], bool]) -> None:
        """Set the function that cuts the connection, and the check for unread bytes.

        If a timeout has already passed or the call was cancelled, cut the connection at once.
        """
        with self._lock:
            self._cut = cut
            self._unread = has_unread_bytes
            if self.reason is not None:
                _ignoring_closed_socket(cut)

    def mark_sent(self) -> None:
        """Record that the whole request was sent, so that a failure from now on may have cost something."""
        self.is_sent = True

    def resume_timer(self) -> None:
        """Start the idle timeout, because a reader waits for bytes."""
        self._idle_expires_at = time.monotonic() + self._idle_seconds
        self._timeout_reason = Reason.SILENCE

    def pause_timer(self) -> None:
        """Stop the idle timeout, because the reader is busy with bytes that have arrived."""
        self._idle_expires_at = math.inf

    def shorten_deadline(self, seconds: float) -> None:
        """Move the deadline to at most this many seconds from now."""
        self._deadline_at = min(self._deadline_at, time.monotonic() + seconds)

    def cancel(self) -> None:
        """Cut the call now, because the client has left."""
        self._end(Reason.CANCELLED)

    def release(self) -> None:
        """Never cut this call's connection again, because the connection may serve another call from now on."""
        with self._lock:
            self._is_released = True
            # Do this under the lock, so that no check cuts a connection that was already released.
            self._cut = None

    def check(self, now: float) -> None:
        """Cut the call if a timeout has passed or the call was cancelled."""
        if now >= self._deadline_at:
            self._end(Reason.DEADLINE)
        # Do not cut a call with bytes that have arrived but were not read yet: the upstream is not silent.
        elif now >= self._idle_expires_at and not self._has_unread_bytes():
            self._end(self._timeout_reason)
        elif self._cancelled.is_set():
            self.cancel()

    def raise_if_cut(self, *, may_have_cost: bool) -> None:
        """Raise ProviderTimeout or CallCancelled if the watchdog has cut the call."""
        if self.reason is Reason.CANCELLED:
            raise CallCancelled(may_have_cost=may_have_cost)
        if self.reason is not None:
            raise ProviderTimeout(str(self.reason), may_have_cost=may_have_cost, is_worth_repeating=True)

    def failure(self, otherwise: ProviderError) -> ProviderError:
        """Return the error of `raise_if_cut`, or `otherwise` if the watchdog did not cut the call."""
        try:
            self.raise_if_cut(may_have_cost=otherwise.may_have_cost)
        except ProviderError as error:
            return error
        return otherwise

    def _has_unread_bytes(self) -> bool:
        with self._lock:
            return not self._is_released and self._unread()

    def _end(self, reason: Reason) -> None:
        with self._lock:
            if self._is_released or self.reason is not None:
                return
            self.reason = reason
            if self._cut is not None:
                _ignoring_closed_socket(self._cut)


class Watchdog:
    """Watches the calls of one process. The thread starts with the first call, and sleeps while there are no calls."""

    def __init__(self, *, check_interval_seconds: float = CHECK_INTERVAL_SECONDS) -> None:
        self._calls: set[Call] = set()
        self._lock = threading.Lock()
        self._thread = PeriodicThread(
            self._check_all,
            name="provider-watchdog",
            pause_seconds=check_interval_seconds,
            has_work=lambda: self._calls,
        )

    def watch(self, call: Call) -> None:
        """Watch a call until `forget`."""
        with self._lock:
            self._calls.add(call)
            is_first = len(self._calls) == 1
        # Wake the thread for the first call only: a thread that already watches calls sees new ones in its next round.
        if is_first:
            self._thread.wake()

    def forget(self, call: Call) -> None:
        """Stop watching a call."""
        call.release()
        with self._lock:
            self._calls.discard(call)

    def close(self) -> None:
        """Stop the thread."""
        self._thread.stop(wait=True)

    def __enter__(self) -> Self:
        """Return self."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Stop the thread."""
        self.close()

    def _check_all(self) -> None:
        with self._lock:
            # Copy the set, so that the checks, which may wait for the locks of calls, do not block `watch`.
            calls = tuple(self._calls)
        now = time.monotonic()
        for call in calls:
            call.check(now)


def _ignoring_closed_socket(cut: Callable[[], object]) -> None:
    try:
        cut()
    except OSError:
        return  # the connection was gone already
