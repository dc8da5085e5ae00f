"""Admission control: fair sharing of a pool of slots among tenants, and load shedding when it is exhausted.

A pool knows who uses it. A slot is given while there is room and the tenant's use is below its limit, which is the
larger of two: as much as is still free (a dynamic threshold: an idle pool may be used, a busy one keeps room), and an
equal part for each active tenant and one newcomer. Beyond its limit a caller waits, bounded in time and number;
slots that become free go round robin over the waiting tenants, and within a tenant over its members. All strangers
together are one tenant, within which the same rule holds again for each address.

Each process shares its own slots: nothing is counted elsewhere, and nothing leaks when a process dies. A refusal says
whose lack it is: 429 where the tenant's own use is the reason, 503 where the pool itself is exhausted. One lock
guards a pool; a slot taken and released without waiting costs a few microseconds, whatever the number of tenants.
"""

from __future__ import annotations

import ipaddress
import threading
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

from shared import failpoints
from shared.errors import DomainError, Kind, Unavailable
from shared.telemetry import POOL_REFUSALS, POOL_USE, POOL_WAITS

ALPHA = 1.0
"""A tenant may use this multiple of what is free."""
DEFAULT_PATIENCE_SECONDS = 10.0
RETRY_SECONDS = 1
UNFAIR = "admission.unfair"
"""The fault that switches shares off, so that tests can prove that they would notice."""
WAITED: Final = "quartermaster.waited_seconds"
"""Key in a request's environ: how long it has waited for a thread, which counts for every wait of it thereafter."""
STRANGERS: Final = "strangers"
"""The tenant of everybody whose credential is not known."""


class ConcurrencyLimited(DomainError):
    """Too many requests are in progress, yours or of all without a credential; wait for some to end, then try again."""

    code = "concurrency_limit"
    kind = Kind.LIMITED

    def __init__(self) -> None:
        """Ask for a retry after a second."""
        super().__init__(retry_after_seconds=RETRY_SECONDS)


class PoolExhausted(Unavailable):
    """The service is busy with other requests at the moment; try again."""


class PoolKey(NamedTuple):
    """Who uses a slot: the tenant it counts for, and which of the tenant's members."""

    tenant: Hashable
    member: Hashable


def stranger(address: str | None) -> PoolKey:
    """Give the key of a client without a verified credential: its IPv4 address, or its IPv6 network of 64 bits."""
    return PoolKey(STRANGERS, _network(address or ""))


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


@dataclass(slots=True, eq=False)
class _Tenant:
    """The slots that a tenant uses and the callers that wait, in all and by member; waiting members take turns."""

    use: int = 0
    used_by: dict[Hashable, int] = field(default_factory=dict)
    waiting: int = 0
    queues: OrderedDict[Hashable, deque[_Waiter]] = field(default_factory=OrderedDict)

    @property
    def is_idle(self) -> bool:
        return not self.use and not self.waiting


class _Waiter:
    """A caller that waits for a slot."""

    __slots__ = ("event", "is_granted")

    def __init__(self) -> None:
        self.event = threading.Event()
        self.is_granted = False


class Slot:
    """A slot that was given; a context manager that gives it back. It is used by one thread at a time."""

    __slots__ = ("_key", "_pool")

    def __init__(self, pool: Pool, key: PoolKey) -> None:
        """Made by a pool."""
        self._pool = pool
        self._key: PoolKey | None = key

    def move(self, key: PoolKey, *, waited_seconds: float = 0.0) -> None:
        """Count the slot for another key from now on, as soon as a caller's credential is known.

        Raises ConcurrencyLimited, PoolExhausted; then nothing is held any more.
        """
        held, self._key = self._key, None
        if held is None:
            raise RuntimeError("the slot was given back")
        self._pool._exchange(held, key, waited_seconds)  # noqa: SLF001 (the two are one mechanism)
        self._key = key

    def release(self) -> None:
        """Give the slot back; again does nothing."""
        held, self._key = self._key, None
        if held is not None:
            self._pool._give_back(held)  # noqa: SLF001 (the two are one mechanism)

    def __enter__(self) -> Self:
        """Hold the slot within a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give it back."""
        self.release()


class Pool:
    """A bounded number of slots of one kind, shared within this process."""

    def __init__(
        self,
        name: str,
        slots: int,
        *,
        patience_seconds: float = DEFAULT_PATIENCE_SECONDS,
        waiting: int | None = None,
        alpha: float = ALPHA,
    ) -> None:
        """Have so many slots, and room for as many callers that wait, unless another number is given.

        `name` is a label of metrics. A caller waits `patience_seconds`. A tenant may use
        `alpha` times what is free.
        """
        self._alpha = alpha
        self.name = name
        self.slots = slots
        self._patience_seconds = patience_seconds
        self._room = slots if waiting is None else waiting
        self._free = slots
        self._waiting = 0
        self._is_fair = not failpoints.is_armed(UNFAIR)
        self._tenants: dict[Hashable, _Tenant] = {}
        self._queued: OrderedDict[Hashable, _Tenant] = OrderedDict()
        self._lock = threading.Lock()
        self._use_gauge = POOL_USE.labels(name)

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
        """Take a slot, after a bounded wait if need be, of which so much is over.

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
            tenant = self._tenants.get(seen.tenant) or _Tenant()
            if tenant.waiting or not self._may_take(tenant, seen):
                return None
            self._take(self._tenants.setdefault(seen.tenant, tenant), seen)
        return Slot(self, key)

    def _exchange(self, old: PoolKey, new: PoolKey, waited_seconds: float) -> None:
        old, new = self._as_seen(old), self._as_seen(new)
        with self._lock:
            self._put_back(old)
            try:
                waiter = self._enter(new)
            finally:
                self._hand_over()
        if waiter is not None:
            self._wait(new, waiter, waited_seconds)

    def _give_back(self, key: PoolKey) -> None:
        with self._lock:
            self._put_back(self._as_seen(key))
            self._hand_over()

    def _as_seen(self, key: PoolKey) -> PoolKey:
        return key if self._is_fair else PoolKey(None, None)

    # What follows is called with the lock held.

    def _enter(self, key: PoolKey) -> _Waiter | None:
        """Take a slot, or begin to wait; None when the slot was given."""
        tenant = self._tenants.setdefault(key.tenant, _Tenant())
        if key.member not in tenant.queues and self._may_take(tenant, key):
            self._take(tenant, key)
            return None
        if not self._has_waiting_room(tenant, key):
            self._refuse(tenant, key)
        waiter = _Waiter()
        tenant.queues.setdefault(key.member, deque()).append(waiter)
        tenant.waiting += 1
        self._waiting += 1
        self._queued.setdefault(key.tenant, tenant)
        POOL_WAITS.labels(self.name).inc()
        return waiter

    def _limit(self, free: int, whole: int, active: int) -> float:
        """Give how much of `whole` one of `active` may use, of which so much is free."""
        return max(self._alpha * free, whole / (active + 1)) if self._is_fair else whole

    def _has_room(self, tenant: _Tenant) -> bool:
        return self._free > 0 and tenant.use < self._limit(self._free, self.slots, len(self._tenants))

    def _may_take(self, tenant: _Tenant, key: PoolKey) -> bool:
        if not self._has_room(tenant):
            return False
        if key.tenant != STRANGERS:
            return True
        whole = self._limit(self._free, self.slots, len(self._tenants))
        members = len(tenant.used_by.keys() | tenant.queues.keys() | {key.member})
        return tenant.used_by.get(key.member, 0) < self._limit(int(whole) - tenant.use, int(whole), members)

    def _has_waiting_room(self, tenant: _Tenant, key: PoolKey) -> bool:
        free = self._room - self._waiting
        if free <= 0:
            return False
        whole = self._limit(free, self._room, len(self._queued.keys() | {key.tenant}))
        if tenant.waiting >= whole:
            return False
        if key.tenant != STRANGERS:
            return True
        members = len(tenant.queues.keys() | {key.member})
        limit = self._limit(int(whole) - tenant.waiting, int(whole), members)
        return len(tenant.queues.get(key.member, ())) < limit

    def _take(self, tenant: _Tenant, key: PoolKey) -> None:
        self._free -= 1
        self._use_gauge.inc()
        tenant.use += 1
        tenant.used_by[key.member] = tenant.used_by.get(key.member, 0) + 1

    def _put_back(self, key: PoolKey) -> None:
        tenant = self._tenants[key.tenant]
        self._free += 1
        self._use_gauge.dec()
        tenant.use -= 1
        left = tenant.used_by[key.member] - 1
        if left:
            tenant.used_by[key.member] = left
        else:
            del tenant.used_by[key.member]
        self._forget_if_idle(key.tenant, tenant)

    def _hand_over(self) -> None:
        """Give what is free to those that wait: the tenant served longest ago first, and its members in turn."""
        passed = 0
        while self._free and passed < len(self._queued):
            name, tenant = next(iter(self._queued.items()))
            self._queued.move_to_end(name)
            passed = 0 if self._serve(name, tenant) else passed + 1

    def _serve(self, name: Hashable, tenant: _Tenant) -> bool:
        for _ in range(len(tenant.queues)):
            member, queue = next(iter(tenant.queues.items()))
            tenant.queues.move_to_end(member)
            key = PoolKey(name, member)
            if self._may_take(tenant, key):
                waiter = queue[0]
                self._leave(key, waiter)
                self._take(tenant, key)
                waiter.is_granted = True
                waiter.event.set()
                return True
            if name != STRANGERS:
                return False
        return False

    def _leave(self, key: PoolKey, waiter: _Waiter) -> None:
        tenant = self._tenants[key.tenant]
        queue = tenant.queues[key.member]
        queue.remove(waiter)
        if not queue:
            del tenant.queues[key.member]
        tenant.waiting -= 1
        self._waiting -= 1
        if not tenant.waiting:
            del self._queued[key.tenant]

    def _forget_if_idle(self, name: Hashable, tenant: _Tenant) -> None:
        if tenant.is_idle:
            self._tenants.pop(name, None)

    def _uses(self, tenant: _Tenant, key: PoolKey) -> bool:
        """Tell whether a key's own use is why it gets no slot, or that of all strangers while others would get one."""
        if key.tenant == STRANGERS:
            return self._free > 0 or key.member in tenant.used_by or key.member in tenant.queues
        return not tenant.is_idle

    def _refuse(self, tenant: _Tenant, key: PoolKey) -> None:
        is_own_use = self._uses(tenant, key)
        self._forget_if_idle(key.tenant, tenant)
        POOL_REFUSALS.labels(self.name, "tenant" if is_own_use else "pool").inc()
        raise ConcurrencyLimited if is_own_use else PoolExhausted

    # Called without it.

    def _wait(self, key: PoolKey, waiter: _Waiter, waited_seconds: float) -> None:
        if waiter.event.wait(max(0.0, self._patience_seconds - waited_seconds)):
            return
        with self._lock:
            if waiter.is_granted:
                return
            self._leave(key, waiter)
            tenant = self._tenants[key.tenant]
            self._refuse(tenant, key)
