"""Fair queueing of model calls: which one a worker makes next, so that no provider has all of its threads.

The worker's slots are a pool whose tenants are providers: one alone may use seven eighths. A call whose provider has
no room is put aside, without a thread, until a thread ends a call of the provider or finds it with room.
"""

import threading
import time
from dataclasses import dataclass

import redis

from shared.admission import Pool, PoolKey, Slot
from shared.models.call_queue import CallQueue, QueuedCall
from shared.models.shares import PROVIDER_ALPHA
from shared.telemetry import get_logger

log = get_logger(__name__)

LOOK_SECONDS = 1.0
"""How often a worker asks what other workers have put aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmittedCall:
    """A call to be made, and the slot that it holds in this worker."""

    call: QueuedCall
    slot: Slot


class FairCalls:
    """The waiting calls as one worker process takes them; safe to share between threads."""

    def __init__(self, queue: CallQueue, *, slots: int, patience_seconds: float) -> None:
        self._queue = queue
        self._patience_seconds = patience_seconds
        self._pool = Pool("model_worker", slots, alpha=PROVIDER_ALPHA)
        self._put_aside: frozenset[str] = frozenset()
        self._looked_at = float("-inf")
        self._lock = threading.Lock()

    def take(self) -> AdmittedCall | None:
        """Wait for a call, and take a slot for it; None when there was none, or it was put aside.

        Raises redis.RedisError.
        """
        self._look_aside()
        at_limit = set(self._pool.tenants_at_limit())
        with_room = [provider for provider in self._put_aside if provider not in at_limit]
        call = self._queue.take(patience_seconds=self._patience_seconds, put_aside=with_room)
        return self._admit(call) if call is not None else None

    def take_following(self, provider: str) -> AdmittedCall | None:
        """Take a call that was put aside for want of what has just been given back; None when there is none."""
        if provider not in self._put_aside:
            return None
        try:
            call = self._queue.take_put_aside(provider)
            if call is not None:
                return self._admit(call)
        except redis.RedisError as error:
            log.warning("calls.not_taken", provider=provider, error=str(error))
            return None
        with self._lock:
            self._put_aside -= {provider}
        return None

    def _admit(self, call: QueuedCall) -> AdmittedCall | None:
        slot = self._pool.try_acquire(PoolKey(call.provider, None))
        if slot is not None:
            return AdmittedCall(call=call, slot=slot)
        with self._lock:
            self._put_aside |= {call.provider}
        self._queue.put_aside(call)
        return None

    def _look_aside(self) -> None:
        now = time.monotonic()
        with self._lock:
            if now - self._looked_at < LOOK_SECONDS:
                return
            self._looked_at = now
        found = self._queue.providers_put_aside()
        with self._lock:
            self._put_aside |= frozenset(found)
