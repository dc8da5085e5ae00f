"""Admission control: fair sharing of a pool of slots among tenants, and load shedding when it is exhausted.

`shared/fairness/fair_sharing.py` holds the rule. Beyond its limit a caller waits, bounded in time and number; free
slots go round robin over the waiting tenants. A refusal is 429 where the tenant's own use is the reason, 503 where the
pool is exhausted. Each process shares its own slots, so nothing leaks when it dies.
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
"""The fault that switches shares off, so that tests can prove that they would notice."""
WAITED: Final = "quartermaster.waited_seconds"
"""Key in a request's environ: how long it has waited for a thread, which counts for every wait of it thereafter."""


def anonymous_key(address: str | None) -> PoolKey:
    """Give the key of a client without a verified credential: its IPv4 address, or its IPv6 network of 64 bits."""
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
    return str(ipaddress.IPv6Network((int(parsed) >> 64 << 64, 64)))


class Slot:
    """A slot that was given; a context manager that gives it back. It is used by one thread at a time."""

    __slots__ = ("_key", "_pool")

    def __init__(self, pool: Pool, key: PoolKey) -> None:
        self._pool = pool
        self._key: PoolKey | None = key

    def move(self, key: PoolKey, *, waited_seconds: float = 0.0) -> None:
        """Count the slot for another key from now on, as soon as a caller's credential is known.

        Raises ConcurrencyLimited, PoolExhausted; then nothing is held any more.
        """
        held, self._key = self._key, None
        if held is None:
            raise RuntimeError("the slot was given back")
        self._pool._move_slot(held, key, waited_seconds)  # noqa: SLF001 (the two are one mechanism)
        self._key = key

    def release(self) -> None:
        """Give the slot back; again does nothing."""
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
        """Let a caller wait `max_wait_seconds` and a tenant use `alpha` times what is free; `name` labels metrics."""
        super().__init__(name, slots, room=slots if waiting is None else waiting, alpha=alpha)
        self._max_wait_seconds = max_wait_seconds
        self._is_fair = not failpoints.is_armed(UNFAIR)
        self._lock = threading.Lock()

    @property
    def in_use(self) -> int:
        """How many slots are in use."""
        return self.slots - self._free

    @property
    def waiting(self) -> int:
        """How many callers wait."""
        return self._waiting

    def use_of(self, tenant: Hashable) -> int:
        """Tell how many slots a tenant uses."""
        with self._lock:
            found = self._tenants.get(tenant)
            return found.use if found is not None else 0

    def tenants_at_limit(self) -> list[Hashable]:
        """List the tenants that would be given no slot now: a worker leaves their work where it is."""
        with self._lock:
            return [key for key, tenant in self._tenants.items() if not self._has_room(tenant)]

    def acquire(self, key: PoolKey, *, waited_seconds: float = 0.0) -> Slot:
        """Take a slot, after a bounded wait if need be, of which `waited_seconds` are over.

        Raises ConcurrencyLimited, PoolExhausted.
        """
        with self._lock:
            waiter = self._enter(self._as_seen(key))
        if waiter is not None:
            self._wait(self._as_seen(key), waiter, waited_seconds)
        return Slot(self, key)

    def try_acquire(self, key: PoolKey) -> Slot | None:
        """Take a slot if one is to be had at once and nobody of the same tenant waits for it."""
        seen = self._as_seen(key)
        with self._lock:
            tenant = self._tenants.get(seen.tenant) or Tenant()
            if tenant.waiting or not self._may_take(tenant, seen):
                return None
            self._take(self._tenants.setdefault(seen.tenant, tenant), seen)
        return Slot(self, key)

    def _move_slot(self, old: PoolKey, new: PoolKey, waited_seconds: float) -> None:
        old, new = self._as_seen(old), self._as_seen(new)
        with self._lock:
            self._release(old)
            try:
                waiter = self._enter(new)
            finally:
                self._hand_over()
        if waiter is not None:
            self._wait(new, waiter, waited_seconds)

    def _release_slot(self, key: PoolKey) -> None:
        with self._lock:
            self._release(self._as_seen(key))
            self._hand_over()

    def _as_seen(self, key: PoolKey) -> PoolKey:
        return key if self._is_fair else PoolKey(None, None)

    def _wait(self, key: PoolKey, waiter: Waiter, waited_seconds: float) -> None:
        if waiter.event.wait(max(0.0, self._max_wait_seconds - waited_seconds)):
            return
        with self._lock:
            if waiter.is_granted:
                return
            self._leave(key, waiter)
            tenant = self._tenants[key.tenant]
            self._refuse(tenant, key)
