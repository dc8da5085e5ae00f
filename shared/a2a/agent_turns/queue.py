"""Claim turns for a worker process in a fair order; one organization gets at most its share of the threads.

A process scans for turns in three cases: another process announces a turn, a turn of this process ends and frees a
slot, or half a second has passed. Only one thread at a time scans.
"""

import math
import threading
from dataclasses import dataclass

from shared.a2a.turn_state.leases import Lease, TurnLeases
from shared.fairness.admission import Pool, PoolKey, Slot

POLL_SECONDS = 0.5
MAX_WAIT_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenTurn:
    """A turn that this process has leased, and the slot in which it runs."""

    lease: Lease
    slot: Slot


class TurnQueue:
    """Claims turns for the threads of one process."""

    def __init__(self, leases: TurnLeases, *, slots: int) -> None:
        """Create a queue that runs at most `slots` turns at once."""
        self._leases = leases
        self._pool = Pool("turns", slots)
        self._poll_lock = threading.Lock()
        self._wake_ups = threading.Semaphore(0)
        self._takes_all = False

    def announce(self) -> None:
        """Wake one waiting thread, because one turn was announced."""
        self._wake_ups.release()

    def wake(self) -> None:
        """Wake the threads one after another until no turn is left, because any number of turns may wait."""
        self._takes_all = True
        self._wake_ups.release()

    def take(self) -> TakenTurn | None:
        """Wait for a turn and claim it. Return None after two seconds. Raises ServiceUnavailable."""
        # Return None after the timeout, so that the calling thread can check for a shutdown.
        if not self._poll_lock.acquire(timeout=MAX_WAIT_SECONDS):
            return None
        try:
            # If no wake-up came for half a second, announcements may have been lost: claim until no turn is left.
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
        # Read before the release: only a full pool, or a tenant at its limit, can have made another turn wait.
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
        # Only this thread acquires slots, and the organization is below its limit, so `acquire` does not wait.
        slot = self._pool.acquire(PoolKey(lease.payer_id, lease.deployment_id), waited_seconds=math.inf)
        return TakenTurn(lease=lease, slot=slot)
