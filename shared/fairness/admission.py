"""Admission control and fair sharing: share a pool of slots among tenants; refuse requests when it is exhausted.

`shared/fairness/fair_sharing.py` holds the rule. A caller beyond its tenant's limit waits. The time of the wait and
the number of waiting callers are bounded. Free slots are assigned round robin to the waiting tenants. A refusal is
429 if the tenant's own use is the cause, and 503 if the pool is exhausted. Each process shares only its own slots,
so a process that dies leaks no slots.
"""

from __future__ import annotations

import ipaddress
import threading
from collections.abc import Hashable
from typing import Final, Self

from shared import failpoints
from shared.fairness.fair_sharing import (
    ALPHA,
    ANONYMOUS,
    ConcurrencyLimited,
    FairShares,
    PoolExhausted,
    PoolKey,
    Tenant,
    Waiter,
)

__all__ = ["ANONYMOUS", "ConcurrencyLimited", "Pool", "PoolExhausted", "PoolKey", "Slot", "anonymous_key"]
DEFAULT_MAX_WAIT_SECONDS = 10.0
UNFAIR = "admission.unfair"
"""The failpoint that disables fair shares: tests use it to prove that they would notice."""
WAITED: Final = "quartermaster.waited_seconds"
"""Key in a request's environ: the seconds it has waited for a thread, which count towards each later wait."""


def anonymous_key(address: str | None) -> PoolKey:
    """Return the key of a client without a verified credential: its IPv4 address or IPv6 /64 network."""
    return PoolKey(ANONYMOUS, _network(address or ""))


def _network(address: str) -> str:
    if ":" not in address:
        return address
    try:
        parsed = ipaddress.IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    # Use the /64 network: one customer usually has a whole /64, and could otherwise appear as 2^64 clients.
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


class Slot:
    """An acquired slot. As a context manager, the slot is released at the end. One thread at a time may use a slot."""

    __slots__ = ("_key", "_pool")

    def __init__(self, pool: Pool, key: PoolKey) -> None:
        self._pool = pool
        self._key: PoolKey | None = key

    def move(self, key: PoolKey, *, waited_seconds: float = 0.0) -> None:
        """Count the slot for another key, for example that of the caller after its credential was verified.

        Raises ConcurrencyLimited or PoolExhausted. In both cases the slot is released.
        """
        held, self._key = self._key, None
        if held is None:
            raise RuntimeError("the slot was released")
        self._pool._move_slot(held, key, waited_seconds)  # noqa: SLF001 (the two are one mechanism)
        self._key = key

    def release(self) -> None:
        """Release the slot. A second call does nothing."""
        held, self._key = self._key, None
        if held is not None:
            self._pool._release_slot(held)  # noqa: SLF001 (the two are one mechanism)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Pool(FairShares):
    """A bounded number of slots of one kind, shared within this process."""

    def __init__(
        self,
        name: str,
        slots: int,
        *,
        max_wait_seconds: float = DEFAULT_MAX_WAIT_SECONDS,
        waiting: int | None = None,
        alpha: float = ALPHA,
    ) -> None:
        """Create a pool. Its callers wait for up to `max_wait_seconds`, and `name` labels its metrics.

        `waiting` is the highest number of waiting callers (default: `slots`). A tenant may use `alpha` times the
        free slots.
        """
        super().__init__(name, slots, room=slots if waiting is None else waiting, alpha=alpha)
        self._max_wait_seconds = max_wait_seconds
        self._is_fair = not failpoints.is_armed(UNFAIR)
        self._lock = threading.Lock()

    @property
    def in_use(self) -> int:
        """The number of slots in use."""
        return self.slots - self._free

    @property
    def waiting(self) -> int:
        """The number of waiting callers."""
        return self._waiting

    def use_of(self, tenant: Hashable) -> int:
        """Return the number of slots that a tenant uses."""
        with self._lock:
            found = self._tenants.get(tenant)
            return found.use if found is not None else 0

    def tenants_at_limit(self) -> list[Hashable]:
        """Return the tenants that would get no slot now; a worker leaves their rows unclaimed."""
        with self._lock:
            return [key for key, tenant in self._tenants.items() if not self._has_room(tenant)]

    def acquire(self, key: PoolKey, *, waited_seconds: float = 0.0) -> Slot:
        """Acquire a slot. Wait if necessary, but subtract `waited_seconds` from the allowed wait.

        Raises ConcurrencyLimited or PoolExhausted.
        """
        with self._lock:
            waiter = self._enter(self._as_seen(key))
        if waiter is not None:
            self._wait(self._as_seen(key), waiter, waited_seconds)
        return Slot(self, key)

    def try_acquire(self, key: PoolKey) -> Slot | None:
        """Acquire a slot without waiting. Return None if no slot is free or a caller of the same tenant waits."""
        seen = self._as_seen(key)
        with self._lock:
            tenant = self._tenants.get(seen.tenant) or Tenant()
            # Do not overtake a waiting caller of the same tenant.
            if tenant.waiting or not self._may_take(tenant, seen):
                return None
            self._take(self._tenants.setdefault(seen.tenant, tenant), seen)
        return Slot(self, key)

    def _move_slot(self, old: PoolKey, new: PoolKey, waited_seconds: float) -> None:
        old, new = self._as_seen(old), self._as_seen(new)
        with self._lock:
            # Release first: in an exhausted pool a caller must be able to use its own slot for the new key.
            self._release(old)
            try:
                waiter = self._enter(new)
            # Assign the old slot even after a refusal, because it is free now.
            finally:
                self._hand_over()
        if waiter is not None:
            self._wait(new, waiter, waited_seconds)

    def _release_slot(self, key: PoolKey) -> None:
        with self._lock:
            self._release(self._as_seen(key))
            self._hand_over()

    def _as_seen(self, key: PoolKey) -> PoolKey:
        # If the failpoint is armed, treat all callers as one tenant.
        return key if self._is_fair else PoolKey(None, None)

    def _wait(self, key: PoolKey, waiter: Waiter, waited_seconds: float) -> None:
        if waiter.event.wait(max(0.0, self._max_wait_seconds - waited_seconds)):
            return
        with self._lock:
            # If the slot was granted between the timeout and this lock, the caller has it.
            if waiter.is_granted:
                return
            self._leave(key, waiter)
            tenant = self._tenants[key.tenant]
            self._refuse(tenant, key)
