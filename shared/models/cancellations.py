"""Cancel calls that no client waits for, from a background thread of the web process.

Calls are cancelled in batches, to save round trips to Valkey. While Valkey is unreachable, cancellations are kept and
retried. Without a cancellation, a worker learns only at its next reply that the client has left.
"""

import threading
from itertools import islice
from uuid import UUID

import redis

from shared.errors import ServiceUnavailable
from shared.models.queue.call_queue import CallQueue
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

BATCH_SECONDS = 0.01
RETRY_SECONDS = 1.0
BATCH_SIZE = 500
MAX_PENDING = 10_000
"""Maximum number of pending cancellations. If there are more, the oldest is dropped, and its call ends later."""


class Cancellations:
    """The calls of one process that must be cancelled; safe to share between threads."""

    def __init__(self, queue: CallQueue) -> None:
        """Create the sender of cancellations for the calls of this queue."""
        self._queue = queue
        self._pending: dict[UUID, None] = {}
        self._lock = threading.Lock()
        self._sender = PeriodicThread(
            self._send,
            name="cancellations",
            pause_seconds=BATCH_SECONDS,
            pause_after_failure_seconds=RETRY_SECONDS,
            has_work=lambda: self._pending,
        )

    def add(self, invocation_id: UUID) -> None:
        """Cancel a call within milliseconds. Does no I/O."""
        with self._lock:
            self._pending[invocation_id] = None
            if len(self._pending) > MAX_PENDING:
                # Drop the oldest cancellation: its call is the most likely to have ended already.
                del self._pending[next(iter(self._pending))]
        self._sender.wake()

    def close(self) -> None:
        """Stop the thread, then send the pending cancellations if Valkey is reachable."""
        self._sender.stop(wait=True)
        try:
            self._send()
        except ServiceUnavailable:
            log.warning("invocations.not_cancelled", calls=len(self._pending))

    def _send(self) -> None:
        while self._pending:
            with self._lock:
                batch = list(islice(self._pending, BATCH_SIZE))
            try:
                # Call Valkey outside the lock, so that `add` never waits for it.
                self._queue.withdraw(*batch)
            except redis.RedisError as error:
                raise ServiceUnavailable("Valkey does not accept cancellations of model calls.") from error
            with self._lock:
                for invocation_id in batch:
                    self._pending.pop(invocation_id, None)
