"""Cancel calls that nobody waits for any more, from a thread of the front: no answer waits until Valkey has taken it.

All that are to be cancelled leave in one round trip, within milliseconds. While Valkey does not answer they are kept
and told later: the worker of a call that says nothing meanwhile would not notice that nobody listens. The thread
begins with the first of them, and rests while there is none.
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
"""Cancellations that one process keeps; beyond them the oldest are forgotten, whose calls end at their next reply."""


class Cancellations:
    """The calls of a process that are to be cancelled; safe to share between threads."""

    def __init__(self, queue: CallQueue) -> None:
        """Cancel the calls of this queue."""
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
        """Have a call cancelled soon; waits for no server."""
        with self._lock:
            self._pending[invocation_id] = None
            if len(self._pending) > MAX_PENDING:
                del self._pending[next(iter(self._pending))]
        self._sender.wake()

    def close(self) -> None:
        """Tell what is left, if Valkey answers, and take no more."""
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
                self._queue.withdraw(*batch)
            except redis.RedisError as error:
                raise ServiceUnavailable("Valkey takes no cancellations of model calls.") from error
            with self._lock:
                for invocation_id in batch:
                    self._pending.pop(invocation_id, None)
