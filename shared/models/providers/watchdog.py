"""Timeouts of upstreams: hang up on those that are too slow, or that nobody waits for any more.

A socket's own timeout begins anew with every byte, and nothing interrupts a thread that reads. So one thread of the
process watches all calls and shuts a socket under its reader, which then finds out here why its connection broke.

Silence is the upstream's only while somebody waits for its bytes and none have come: a reader that is busy elsewhere,
or a process that slept, must not have a paid answer cut off.
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

    FIRST_BYTE = "The provider did not begin to answer in time."
    SILENCE = "The provider stopped in the middle of its answer."
    DEADLINE = "The provider did not finish its answer in time."
    CANCELLED = "The call was cancelled."


class Call:
    """One call under watch, from before its connection until its last byte."""

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
        """Start the clock for the first byte."""
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
        """Whether the connection broke before the upstream had accepted a byte of the request."""
        self.reason: Reason | None = None

    def attach(self, cut: Callable[[], object], has_unread_bytes: Callable[[], bool]) -> None:
        """Say what hangs up from now on, and what tells of unread bytes; hangs up at once if a bound has passed."""
        with self._lock:
            self._cut = cut
            self._unread = has_unread_bytes
            if self.reason is not None:
                _ignoring_closed_socket(cut)

    def mark_sent(self) -> None:
        """Say that the whole request has left: from now on the upstream may work on it."""
        self.is_sent = True

    def resume_timer(self) -> None:
        """Note that somebody waits for bytes of the answer: from now on the upstream may be silent for too long."""
        self._idle_expires_at = time.monotonic() + self._idle_seconds
        self._timeout_reason = Reason.SILENCE

    def pause_timer(self) -> None:
        """Note that nobody waits for bytes: what is done with those that came is not the upstream's silence."""
        self._idle_expires_at = math.inf

    def shorten_deadline(self, seconds: float) -> None:
        """Allow only so much more time: what is awaited now is of no value to anyone."""
        self._deadline_at = min(self._deadline_at, time.monotonic() + seconds)

    def cancel(self) -> None:
        """Hang up now: nobody waits for the answer."""
        self._end(Reason.CANCELLED)

    def release(self) -> None:
        """Watch no more; the connection may serve others now and is never cut again."""
        with self._lock:
            self._is_released = True
            self._cut = None

    def check(self, now: float) -> None:
        """Cut the call if it is time to."""
        if now >= self._deadline_at:
            self._end(Reason.DEADLINE)
        elif now >= self._idle_expires_at and not self._has_unread_bytes():
            self._end(self._timeout_reason)
        elif self._cancelled.is_set():
            self.cancel()

    def raise_if_cut(self, *, may_have_cost: bool) -> None:
        """Raise what the watchdog did, if it did something."""
        if self.reason is Reason.CANCELLED:
            raise CallCancelled(may_have_cost=may_have_cost)
        if self.reason is not None:
            raise ProviderTimeout(str(self.reason), may_have_cost=may_have_cost, is_worth_repeating=True)

    def failure(self, otherwise: ProviderError) -> ProviderError:
        """Tell why the connection broke: we cut it, or something else happened."""
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
    """Watches the calls of one process; its thread starts with the first and sleeps while there are none."""

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
        if is_first:
            self._thread.wake()

    def forget(self, call: Call) -> None:
        """Stop looking after a call."""
        call.release()
        with self._lock:
            self._calls.discard(call)

    def close(self) -> None:
        """End the thread."""
        self._thread.stop(wait=True)

    def __enter__(self) -> Self:
        """Give itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """End the thread."""
        self.close()

    def _check_all(self) -> None:
        with self._lock:
            calls = tuple(self._calls)
        now = time.monotonic()
        for call in calls:
            call.check(now)


def _ignoring_closed_socket(cut: Callable[[], object]) -> None:
    try:
        cut()
    except OSError:
        return  # the connection was gone already
