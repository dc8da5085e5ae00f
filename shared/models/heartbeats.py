"""Heartbeats of model calls: sent by workers, read by web processes.

In a worker, one thread sends a heartbeat to each waiting web process and finds cancelled calls. Another renews the
leases of all calls in one statement, together with the number of streamed tokens, from which a dead worker's calls are
charged.

In a web process, one statement a second reads the leases of all silent calls. The thread sleeps while there is none,
and callers of `find` never wait for it.
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
"""How often a call's lease is renewed: several times within its duration."""
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
        """Send a reply. If that fails or the receiver has gone, cancel the call and return False."""
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
        """Return whether to renew the lease: every few seconds, and soon after the first streamed bytes."""
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
    """The calls of this process. The threads start with the first call."""

    def __init__(self, database: Database, find_cancelled: FindCancelled = _none_cancelled) -> None:
        """Create heartbeats; `find_cancelled` returns those of some calls that were cancelled."""
        self._database = database
        self._find_cancelled = find_cancelled
        # Two threads, so that an unresponsive Postgres does not stop the heartbeats.
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
            # Replies are signs of life, too: a busy stream needs no heartbeat.
            if now - leased.sent_at > ALIVE_SECONDS:
                leased.send(ReplyKind.ALIVE)

    def _cancel_unwanted(self, calls: Sequence[LeasedCall]) -> None:
        """Cancel the calls that their clients gave up."""
        under_way = [leased for leased in calls if not leased.cancelled.is_set()]
        if not under_way:
            return
        try:
            # One round trip for all calls: a check with every reply would double a reply's cost.
            unwanted = self._find_cancelled([leased.dispatch.invocation_id for leased in under_way])
        # Calls continue without cancellation: a wrong cancellation would waste a paid reply.
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
        # Read before the renewal: bytes that arrive during it are not in what it writes.
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
        """Return a call's lease as of a moment ago, or None if it is not known yet. Call again later."""
        now = time.monotonic()
        with self._lock:
            self._requested_at[invocation_id] = now
        self._reader.wake()
        with self._lock:
            age = now - self._read_at
            lease = self._known.get(invocation_id) if age < FRESH_SECONDS else None
        # The lease has run on since it was read.
        return replace(lease, remaining_seconds=lease.remaining_seconds - age) if lease is not None else None

    def close(self) -> None:
        """Stop reading, before the database closes."""
        self._reader.stop(wait=True)

    def _read(self) -> None:
        with self._lock:
            # Calls that no client asks about any more drop out.
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
