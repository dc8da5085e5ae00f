"""The turns that a worker process takes: fairly, and no more of one organization than its share of the threads.

A process looks when it hears of a turn, when one of its own has ended that may have kept others waiting, and every
half second in any case. One thread at a time looks.
"""

import math
import threading
from dataclasses import dataclass

from shared.a2a.agent_turns.leases import Lease, TurnLeases
from shared.fairness.admission import Pool, PoolKey, Slot

POLL_SECONDS = 0.5
MAX_WAIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenTurn:
    """A turn that this process has leased, and the slot that it runs in."""

    lease: Lease
    slot: Slot


class TurnQueue:
    """Takes turns for the threads of one process."""

    def __init__(self, leases: TurnLeases, *, slots: int) -> None:
        """Take as many turns at once as there are slots."""
        self._leases = leases
        self._pool = Pool("turns", slots)
        self._poll_lock = threading.Lock()
        self._wake_ups = threading.Semaphore(0)
        self._takes_all = False

    def announce(self) -> None:
        """Look now: a turn was announced."""
        self._wake_ups.release()

    def wake(self) -> None:
        """Look now and until no turn is left: any number may wait, or there may be room for them."""
        self._takes_all = True
        self._wake_ups.release()

    def take(self) -> TakenTurn | None:
        """Wait for a turn, two seconds at the most. Raises ServiceUnavailable."""
        if not self._poll_lock.acquire(timeout=MAX_WAIT_SECONDS):
            return None
        try:
            self._takes_all |= not self._wake_ups.acquire(timeout=POLL_SECONDS)
            taken = self._take()
            if taken is None:
                self._takes_all = False
            elif self._takes_all:
                self._wake_ups.release()
            return taken
        finally:
            self._poll_lock.release()

    def release(self, taken: TakenTurn) -> None:
        """Release the slot of a turn that has ended."""
        was_wanted = self._pool.in_use >= self._pool.slots or bool(self._pool.tenants_at_limit())
        taken.slot.release()
        if was_wanted:
            self.wake()

    def _take(self) -> TakenTurn | None:
        if self._pool.in_use >= self._pool.slots:
            return None
        lease = self._leases.take(self._pool.tenants_at_limit())
        if lease is None:
            return None
        # Nobody else takes slots, and an organization that is not at its limit has room for one more.
        slot = self._pool.acquire(PoolKey(lease.payer_id, lease.deployment_id), waited_seconds=math.inf)
        return TakenTurn(lease=lease, slot=slot)
