"""Admission of model calls: reserve a call's credits within its organization's share, after a bounded, fair wait.

Two limits apply in this order. First the model's `concurrency_limit`, if the catalog sets one, by slots in Valkey. Then
the organization's share of the workers' slots, which Postgres enforces in the statement that reserves the credits. A
refused call waits in its process. One call of each organization (and model) retries at a time, round robin over the
organization's credentials.
"""

from __future__ import annotations

import random
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from uuid import UUID

from shared.credits import holds
from shared.db.database import Database
from shared.errors import DomainError, Kind
from shared.fairness.admission import ConcurrencyLimited, Pool, PoolKey
from shared.models.concurrency_limits import Shares
from shared.models.model_slots import ModelSlots
from shared.runtime.periodic_thread import PeriodicThread

RETRY_SECONDS = 0.25
MAX_WAITING_CALLS = 1024
"""How many calls of one process may wait for admission. `Pool` shares these places among organizations."""


class ModelsOverloaded(DomainError):
    """Too many model calls are waiting. Nothing was charged. Retry after the time in `Retry-After`."""

    code = "overloaded"
    kind = Kind.UNAVAILABLE

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=2)


Attempt = Callable[[], DomainError | None]
"""A function that tries to admit a call, without waiting.

Returns None if the call was admitted, otherwise the error to raise if the caller waits no longer.
"""


class CallAdmission:
    """The admission of one process's calls; safe to share between threads."""

    def __init__(
        self, database: Database, shares: Shares, slots: ModelSlots, *, max_wait_seconds: float
    ) -> None:
        """Create an admission in which each call waits at most `max_wait_seconds`."""
        self._database = database
        self._max_wait_seconds = max_wait_seconds
        self._shares = shares
        self.slots = slots
        self._share_queue = _WaitQueue()
        self._model_queue = _WaitQueue()
        self._waiting_calls = Pool("model_calls_waiting", MAX_WAITING_CALLS)
        self._slots_to_release: deque[UUID] = deque()
        self._slot_releaser = PeriodicThread(
            self._release_slots,
            name="left-model-slots",
            pause_seconds=0.0,
            has_work=lambda: self._slots_to_release,
        )

    def hold(
        self,
        invocation: holds.NewInvocation,
        key: PoolKey,
        *,
        limit: int | None = None,
        waited_seconds: float = 0.0,
    ) -> None:
        """Reserve a call's credits, waiting until its model and its organization have room for another call.

        `limit` is the model's number of concurrent calls over all organizations; None means unlimited. `waited_seconds`
        is deducted from the maximum wait. If there is no room in time, raises ConcurrencyLimited if the organization
        has open calls, else ModelsOverloaded. Also raises the errors of `holds.hold`. After an error, the caller calls
        `end`, which releases the slot of the model.
        """
        wait_until = time.monotonic() + max(0.0, self._max_wait_seconds - waited_seconds)
        if limit is not None:
            take = partial(
                self.try_to_take,
                invocation.id,
                invocation.organization_id,
                model=invocation.model,
                limit=limit,
            )
            place = PoolKey((key.tenant, invocation.model), key.member)
            self._admit(take, self._model_queue, place, key, wait_until)
        self._admit(partial(self.try_to_hold, invocation), self._share_queue, key, key, wait_until)

    def try_to_take(
        self, call_id: UUID, organization_id: UUID, *, model: str, limit: int
    ) -> DomainError | None:
        """Acquire one of a model's slots if it is the organization's turn. Return the error of a refusal otherwise."""
        held = self.slots.try_to_take(call_id, organization_id, model=model, limit=limit)
        return None if held is None else error_for_refusal(held)

    def try_to_hold(self, invocation: holds.NewInvocation) -> DomainError | None:
        """Reserve a call's credits if the organization may have another call now. Otherwise return the error."""
        assert invocation.provider is not None  # noqa: S101 (a call to be made has an upstream)
        try:
            with (
                self._shares.attempt(invocation.organization_id, invocation.provider) as share,
                self._database.autocommit() as session,
            ):
                holds.hold(session, invocation=invocation, share=share)
                self._shares.begin(invocation.id, invocation.provider)
        except holds.AtShare as at_share:
            return error_for_refusal(at_share.open_calls)
        return None

    def end(self, call_id: UUID) -> None:
        """Record that a call has ended or was abandoned, and wake a call of the next waiting organization.

        Does no I/O: a background thread releases the call's slot of its model.
        """
        self._shares.end(call_id)
        self._share_queue.wake_next()
        if self.slots.stop_renewing(call_id):
            self._slots_to_release.append(call_id)
            self._slot_releaser.wake()

    def _release_slots(self) -> None:
        """Release the slots of ended calls. For each slot, wake one call that waits for a slot of a model."""
        while self._slots_to_release:
            self.slots.release(self._slots_to_release.popleft())
            self._model_queue.wake_next()

    def _admit(
        self, attempt: Attempt, queue: _WaitQueue, place: PoolKey, key: PoolKey, wait_until: float
    ) -> None:
        """Run `attempt` at once if no call of the same organization waits. Wait if it fails or may not run yet.

        `place` is the call's place in `queue`; `key` is the tenant of the pool of waiting calls.
        """
        # The error of a call that never tries: calls of its organization are waiting, so the organization is busy.
        refused: DomainError = ConcurrencyLimited()
        if not queue.has(place.tenant):
            if (error := attempt()) is None:
                return
            refused = error
        place_in_pool = self._waiting_calls.try_acquire(key)
        if place_in_pool is None:
            raise refused
        with place_in_pool:
            self._wait(attempt, queue, place, refused, wait_until)

    def _wait(
        self, attempt: Attempt, queue: _WaitQueue, place: PoolKey, refused: DomainError, wait_until: float
    ) -> None:
        waiter = queue.enter(place)
        try:
            while time.monotonic() < wait_until:
                # Add jitter, so that the waiting calls of many processes do not query the database at the same moment.
                if not waiter.wait(RETRY_SECONDS * random.uniform(1.0, 1.5)):  # noqa: S311
                    queue.wake_if_idle(place.tenant)
                    continue
                if (error := attempt()) is None:
                    return
                refused = error
                # The call was woken but not admitted, so it goes back to the head of its organization's queue.
                queue.requeue_first(place, waiter)
            raise refused
        finally:
            queue.leave(place, waiter)


def error_for_refusal(held: int) -> DomainError:
    """Return ConcurrencyLimited if the organization has open calls (`held`), else ModelsOverloaded."""
    return ConcurrencyLimited() if held else ModelsOverloaded()


@dataclass(slots=True, eq=False)
class _Tenant:
    queues: OrderedDict[Hashable, deque[threading.Event]] = field(default_factory=OrderedDict)
    woken_at: float = field(default_factory=time.monotonic)


class _WaitQueue:
    """The waiting calls by organization and credential. Each call waits for an event that is set when it may retry."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[Hashable, _Tenant] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, tenant: Hashable) -> bool:
        return tenant in self._tenants

    def enter(self, key: PoolKey) -> threading.Event:
        waiter = threading.Event()
        with self._lock:
            queues = self._tenants.setdefault(key.tenant, _Tenant()).queues
            queues.setdefault(key.member, deque()).append(waiter)
        return waiter

    def requeue_first(self, key: PoolKey, waiter: threading.Event) -> None:
        """Move a call that was woken and refused to the head of its organization's queue."""
        with self._lock:
            waiter.clear()
            tenant = self._tenants[key.tenant]
            tenant.queues[key.member].remove(waiter)
            tenant.queues[key.member].appendleft(waiter)
            tenant.queues.move_to_end(key.member, last=False)

    def wake_if_idle(self, name: Hashable) -> None:
        """Wake the organization's next call if the last wake-up of one of its calls is `RETRY_SECONDS` ago."""
        with self._lock:
            tenant = self._tenants[name]
            if time.monotonic() - tenant.woken_at >= RETRY_SECONDS:
                self._wake(tenant)

    def wake_next(self) -> None:
        """Wake the first call of the next organization, round robin."""
        # Skip the lock in the usual case: no call waits.
        if not self._tenants:
            return
        with self._lock:
            if self._tenants:
                name, tenant = self._tenants.popitem(last=False)
                self._tenants[name] = tenant
                self._wake(tenant)

    def leave(self, key: PoolKey, waiter: threading.Event) -> None:
        """Remove a call from the queue, and wake the next call of the same organization."""
        with self._lock:
            tenant = self._tenants[key.tenant]
            queue = tenant.queues[key.member]
            queue.remove(waiter)
            if not queue:
                del tenant.queues[key.member]
            if tenant.queues:
                self._wake(tenant)
            else:
                del self._tenants[key.tenant]

    def _wake(self, tenant: _Tenant) -> None:
        tenant.woken_at = time.monotonic()
        member, queue = next(iter(tenant.queues.items()))
        # Round robin among the organization's credentials.
        tenant.queues.move_to_end(member)
        queue[0].set()
