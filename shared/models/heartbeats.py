"""Heartbeats of model calls: sent by workers, read by web processes.

In a worker, one thread sends a heartbeat to each waiting web process and stops cancelled calls. Another thread renews
the leases of all calls in one statement. The statement also writes each call's number of streamed tokens, by which a
sweep charges the calls of a dead worker.

In a web process, one thread reads the leases of all silent calls with one statement a second. The thread sleeps while
no call is silent, and callers of `find` never wait for the thread.
"""

import threading
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Protocol
from uuid import UUID

import redis

from shared.credits import holds
from shared.credits.holds import Lease, read_leases
from shared.db.database import Database
from shared.errors import DomainError
from shared.messaging.replies import ReplyKind
from shared.models.dialects import estimate_completion_tokens
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import InFlight, PeriodicThread

log = get_logger(__name__)

ROUND_SECONDS = 1.0
ALIVE_SECONDS = 2.0
RENEW_SECONDS = 4.0
"""Seconds between two renewals of a call's lease; the lease lasts several times as long."""
FIRST_NOTE_SECONDS = 2.0
RENEWAL_BATCH = 500
READ_SECONDS = 1.0
FRESH_SECONDS = 3.0
READ_BATCH = 5000


class Listener(Protocol):
    """The receiver of a call's replies, for instance a `ReplyWriter`."""

    def send(self, kind: ReplyKind, data: bytes = b"") -> bool:
        """Send a reply. Return False if the receiver has gone. Raises redis.RedisError."""


FindCancelled = Callable[[Sequence[UUID]], Collection[UUID]]


def _none_cancelled(_: Sequence[UUID]) -> Collection[UUID]:
    return ()


class LeasedCall:
    """One call under way, shared by its own thread and the heartbeat threads."""

    def __init__(self, dispatch: holds.Dispatch, listener: Listener) -> None:
        self.dispatch = dispatch
        self.cancelled = threading.Event()
        self.streamed_bytes = 0
        self.has_sent_data = False
        self.is_noted = False
        self._listener = listener
        self.sent_at = self.renewed_at = time.monotonic()

    def send(self, kind: ReplyKind, data: bytes = b"") -> bool:
        """Send a reply. If sending fails or the receiver has gone, cancel the call and return False."""
        self.sent_at = time.monotonic()
        self.has_sent_data |= kind is ReplyKind.DATA
        try:
            is_received = self._listener.send(kind, data)
        except redis.RedisError as error:
            log.warning("reply.not_sent", invocation_id=self.dispatch.invocation_id, error=str(error))
            is_received = False
        if not is_received:
            self.cancelled.set()
        return is_received

    def is_due(self, now: float) -> bool:
        """Return whether the lease is due for renewal: every few seconds, and soon after the first streamed bytes."""
        is_first = self.streamed_bytes > 0 and not self.is_noted
        return now - self.renewed_at > (FIRST_NOTE_SECONDS if is_first else RENEW_SECONDS)

    @property
    def progress(self) -> holds.Progress:
        """The values that a renewal writes to the lease."""
        return holds.Progress(
            invocation_id=self.dispatch.invocation_id,
            token=self.dispatch.token,
            streamed_tokens=estimate_completion_tokens(self.streamed_bytes),
        )


class Heartbeats:
    """Sends heartbeats and renews leases for the calls of this process. The threads start with the first call."""

    def __init__(self, database: Database, find_cancelled: FindCancelled = _none_cancelled) -> None:
        """Create heartbeats. `find_cancelled` returns the ids of the cancelled calls among the given ids."""
        self._database = database
        self._find_cancelled = find_cancelled
        # Use two threads, so that an unresponsive Postgres does not stop the heartbeats.
        self._calls = InFlight(
            {"call-attendant": self._send_heartbeats, "call-leases": self._renew_due},
            pause_seconds=ROUND_SECONDS,
        )

    def keep_alive(self, dispatch: holds.Dispatch, listener: Listener) -> AbstractContextManager[LeasedCall]:
        """Send heartbeats for a call and renew its lease within the block."""
        return self._calls.track(LeasedCall(dispatch, listener))

    def cancel_all(self) -> None:
        """Cancel every call under way, because this process is about to end."""
        for leased in self._calls.all():
            leased.cancelled.set()

    @property
    def running(self) -> int:
        """The number of calls under way."""
        return len(self._calls)

    def _send_heartbeats(self, calls: Sequence[LeasedCall]) -> None:
        self._cancel_unwanted(calls)
        now = time.monotonic()
        for leased in calls:
            # Send no heartbeat for a busy stream: its replies already show that the worker is alive.
            if now - leased.sent_at > ALIVE_SECONDS:
                leased.send(ReplyKind.ALIVE)

    def _cancel_unwanted(self, calls: Sequence[LeasedCall]) -> None:
        """Cancel the calls that their clients gave up."""
        under_way = [leased for leased in calls if not leased.cancelled.is_set()]
        if not under_way:
            return
        try:
            # Check all calls in one round trip: a check with every reply would double the time for a reply.
            unwanted = self._find_cancelled([leased.dispatch.invocation_id for leased in under_way])
        # If Valkey fails, let all calls continue: a wrong cancellation would waste a paid reply.
        except redis.RedisError as error:
            log.warning("cancellations.not_read", error=str(error))
            return
        for leased in under_way:
            if leased.dispatch.invocation_id in unwanted:
                leased.cancelled.set()

    def _renew_due(self, calls: Sequence[LeasedCall]) -> None:
        now = time.monotonic()
        due = [leased for leased in calls if leased.is_due(now)]
        for start in range(0, len(due), RENEWAL_BATCH):
            self._renew(due[start : start + RENEWAL_BATCH], now)

    def _renew(self, calls: Sequence[LeasedCall], now: float) -> None:
        # Read this before the renewal, which does not write bytes that arrive while it runs.
        are_streaming = [leased.streamed_bytes > 0 for leased in calls]
        try:
            with self._database.autocommit() as session:
                holds.renew(session, [leased.progress for leased in calls])
        except DomainError as error:
            log.warning("leases.not_renewed", calls=len(calls), error=error.code)
            return
        for leased, is_streaming in zip(calls, are_streaming, strict=True):
            leased.renewed_at, leased.is_noted = now, is_streaming


class LeaseReader:
    """Reads the leases of one process's silent calls; safe to share between threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._requested_at: dict[UUID, float] = {}
        self._known: dict[UUID, Lease] = {}
        self._read_at = float("-inf")
        self._lock = threading.Lock()
        self._reader = PeriodicThread(
            self._read, name="lease-reader", pause_seconds=READ_SECONDS, has_work=lambda: self._requested_at
        )

    def find(self, invocation_id: UUID) -> Lease | None:
        """Return a call's lease as last read, or None if it was not read yet. On None, call again after a second."""
        now = time.monotonic()
        with self._lock:
            self._requested_at[invocation_id] = now
        self._reader.wake()
        with self._lock:
            age = now - self._read_at
            lease = self._known.get(invocation_id) if age < FRESH_SECONDS else None
        # Subtract the time since the read, in which the lease has come closer to its expiry.
        return replace(lease, remaining_seconds=lease.remaining_seconds - age) if lease is not None else None

    def close(self) -> None:
        """Stop reading, before the database closes."""
        self._reader.stop(wait=True)

    def _read(self) -> None:
        with self._lock:
            # Forget calls about which `find` was not called for a while.
            since = time.monotonic() - 3 * FRESH_SECONDS
            self._requested_at = {
                at: requested for at, requested in self._requested_at.items() if requested > since
            }
            requested = list(self._requested_at)
        known: dict[UUID, Lease] = {}
        with self._database.autocommit() as session:
            for start in range(0, len(requested), READ_BATCH):
                known |= read_leases(session, requested[start : start + READ_BATCH])
        with self._lock:
            self._known, self._read_at = known, time.monotonic()
