"""The rule that shares a pool's slots: which caller gets one, which waits, and which is served next.

A tenant's limit is the larger of two numbers. The first follows the free slots (a dynamic threshold): a tenant may
use much of an idle pool and little of a busy one. The second is an equal part for each active tenant plus one new
tenant. All anonymous clients are one tenant, whose share is divided equally among addresses. This module neither
locks nor waits: `shared/fairness/admission.py` holds the pool's lock.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NoReturn

from shared.errors import DomainError, Kind, ServiceUnavailable
from shared.observability.telemetry import POOL_REFUSALS, POOL_SLOTS, POOL_USE, POOL_WAITS

ALPHA = 1.0
"""A tenant may use this multiple of the free slots."""
RETRY_SECONDS = 1
ANONYMOUS: Final = "anonymous"
"""The tenant of all clients without a verified credential."""


class ConcurrencyLimited(DomainError):
    """Too many of your requests, or of all anonymous ones, are in progress. Retry after some have ended."""

    code = "concurrency_limit"
    kind = Kind.LIMITED

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=RETRY_SECONDS)


class PoolExhausted(ServiceUnavailable):
    """The service is busy with other requests. Try again."""


class PoolKey(NamedTuple):
    """The user of a slot: the tenant for which the slot counts, and the tenant's member."""

    tenant: Hashable
    member: Hashable


@dataclass(slots=True, eq=False)
class Tenant:
    """A tenant's used slots and waiting callers, in total and by member; its members are served round robin."""

    use: int = 0
    used_by: dict[Hashable, int] = field(default_factory=dict)
    waiting: int = 0
    queues: OrderedDict[Hashable, deque[Waiter]] = field(default_factory=OrderedDict)

    @property
    def is_idle(self) -> bool:
        """Whether the tenant uses no slot and waits for none."""
        return not self.use and not self.waiting


class Waiter:
    """A caller that waits for a slot."""

    __slots__ = ("event", "is_granted")

    def __init__(self) -> None:
        self.event = threading.Event()
        self.is_granted = False


class FairShares:
    """The slots of a pool and the tenants that use or await them."""

    def __init__(self, name: str, slots: int, *, room: int, alpha: float) -> None:
        self.name = name
        self.slots = slots
        self._room = room
        self._alpha = alpha
        self._is_fair = True
        self._free = slots
        self._waiting = 0
        self._tenants: dict[Hashable, Tenant] = {}
        self._queued: OrderedDict[Hashable, Tenant] = OrderedDict()
        self._use_gauge = POOL_USE.labels(name)
        POOL_SLOTS.labels(name).set(slots)
        for reason in ("tenant", "pool"):  # create each series with 0: an alert would miss its first increase
            POOL_REFUSALS.labels(name, reason)
        POOL_WAITS.labels(name)

    def _enter(self, key: PoolKey) -> Waiter | None:
        """Acquire a slot, or start to wait. Return None if a slot was acquired."""
        tenant = self._tenants.setdefault(key.tenant, Tenant())
        # A caller queues behind waiting callers of the same member, even if a slot is free.
        if key.member not in tenant.queues and self._may_take(tenant, key):
            self._take(tenant, key)
            return None
        if not self._has_waiting_room(tenant, key):
            self._refuse(tenant, key)
        waiter = Waiter()
        tenant.queues.setdefault(key.member, deque()).append(waiter)
        tenant.waiting += 1
        self._waiting += 1
        self._queued.setdefault(key.tenant, tenant)
        POOL_WAITS.labels(self.name).inc()
        return waiter

    def _limit(self, free: int, whole: int, active: int) -> float:
        """Return how much of `whole` each of `active` tenants may use while an amount of `free` is unused."""
        return max(self._alpha * free, whole / (active + 1)) if self._is_fair else whole

    def _has_room(self, tenant: Tenant) -> bool:
        return self._free > 0 and tenant.use < self._limit(self._free, self.slots, len(self._tenants))

    def _may_take(self, tenant: Tenant, key: PoolKey) -> bool:
        if not self._has_room(tenant):
            return False
        if key.tenant != ANONYMOUS:
            return True
        # Apply the same rule again, to divide the anonymous tenant's share among addresses.
        whole = self._limit(self._free, self.slots, len(self._tenants))
        members = len(tenant.used_by.keys() | tenant.queues.keys() | {key.member})
        return tenant.used_by.get(key.member, 0) < self._limit(int(whole) - tenant.use, int(whole), members)

    def _has_waiting_room(self, tenant: Tenant, key: PoolKey) -> bool:
        free = self._room - self._waiting
        if free <= 0:
            return False
        # Share the places for waiting callers by the same rule as the slots.
        whole = self._limit(free, self._room, len(self._queued.keys() | {key.tenant}))
        if tenant.waiting >= whole:
            return False
        if key.tenant != ANONYMOUS:
            return True
        members = len(tenant.queues.keys() | {key.member})
        limit = self._limit(int(whole) - tenant.waiting, int(whole), members)
        return len(tenant.queues.get(key.member, ())) < limit

    def _take(self, tenant: Tenant, key: PoolKey) -> None:
        self._free -= 1
        self._use_gauge.inc()
        tenant.use += 1
        tenant.used_by[key.member] = tenant.used_by.get(key.member, 0) + 1

    def _release(self, key: PoolKey) -> None:
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
        """Assign free slots to waiting callers, beginning with the tenant that was served longest ago.

        The members of a tenant are served round robin.
        """
        passed = 0
        while self._free and passed < len(self._queued):
            name, tenant = next(iter(self._queued.items()))
            self._queued.move_to_end(name)
            # End the loop after a full round in which no tenant could be served.
            passed = 0 if self._serve(name, tenant) else passed + 1

    def _serve(self, name: Hashable, tenant: Tenant) -> bool:
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
            if name != ANONYMOUS:
                return False
        return False

    def _leave(self, key: PoolKey, waiter: Waiter) -> None:
        tenant = self._tenants[key.tenant]
        queue = tenant.queues[key.member]
        queue.remove(waiter)
        if not queue:
            del tenant.queues[key.member]
        tenant.waiting -= 1
        self._waiting -= 1
        if not tenant.waiting:
            del self._queued[key.tenant]

    def _forget_if_idle(self, name: Hashable, tenant: Tenant) -> None:
        if tenant.is_idle:
            # Remove idle tenants: if they counted as active, they would lower the limits of the other tenants.
            self._tenants.pop(name, None)

    def _uses(self, tenant: Tenant, key: PoolKey) -> bool:
        """Return whether the key's own use is the cause of a refusal, rather than an exhausted pool.

        For an anonymous client, the use of all anonymous clients is also a cause if another tenant would get a
        slot.
        """
        if key.tenant == ANONYMOUS:
            return self._free > 0 or key.member in tenant.used_by or key.member in tenant.queues
        return not tenant.is_idle

    def _refuse(self, tenant: Tenant, key: PoolKey) -> NoReturn:
        is_own_use = self._uses(tenant, key)
        self._forget_if_idle(key.tenant, tenant)
        POOL_REFUSALS.labels(self.name, "tenant" if is_own_use else "pool").inc()
        raise ConcurrencyLimited if is_own_use else PoolExhausted
