"""Admit a call: hold its credits within its organization's share, after a bounded, fair wait if need be.

The hold decides, in Postgres and for all processes; before it, where a model has a limit of its own, Valkey does, of
which nothing is asked for any other. Each process orders those that it keeps waiting: one of each organization (and,
for its limit, of each model) tries at a time, its credentials take turns, and the next tries when one is admitted or a
call ends.
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
"""Calls that one process keeps waiting for their share; shared among organizations as slots are."""


class ModelsOverloaded(DomainError):
    """More calls are waiting than can be answered soon; nothing was charged, try again."""

    code = "overloaded"
    kind = Kind.UNAVAILABLE

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=2)


Attempt = Callable[[], DomainError | None]
"""What tries to be admitted at once; else gives what a caller that tries no more is told."""


class CallAdmission:
    """The admission of one process's calls; safe to share between threads."""

    def __init__(
        self, database: Database, shares: Shares, slots: ModelSlots, *, max_wait_seconds: float
    ) -> None:
        """Let nobody wait yet, and later nobody longer than this."""
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
        """Hold a call's credits, or wait until its organization may have another call, of this model in particular.

        `limit` is how many calls the model may have at once, whosever they are. Raises ConcurrencyLimited where the
        organization has calls and no room for more, ModelsOverloaded where it has none and there is no room, and what
        `holds.hold` raises. `end` gives back what was taken by then.
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
        """Take one of a model's slots for a call if it is its organization's turn; else give the refusal."""
        held = self.slots.try_to_take(call_id, organization_id, model=model, limit=limit)
        return None if held is None else error_for_refusal(held)

    def try_to_hold(self, invocation: holds.NewInvocation) -> DomainError | None:
        """Hold a call's credits if its organization may have another call now; else give the refusal."""
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
        """Note that a call has ended, or is not waited for any more, and let the next organization in turn try.

        Waits for no server: a slot of a model with a limit is given back by a thread of its own.
        """
        self._shares.end(call_id)
        self._share_queue.wake_next()
        if self.slots.stop_renewing(call_id):
            self._slots_to_release.append(call_id)
            self._slot_releaser.wake()

    def _release_slots(self) -> None:
        """Give back the slots that were left, and let the next in line for one try."""
        while self._slots_to_release:
            self.slots.release(self._slots_to_release.popleft())
            self._model_queue.wake_next()

    def _admit(
        self, attempt: Attempt, queue: _WaitQueue, place: PoolKey, key: PoolKey, wait_until: float
    ) -> None:
        """Try now, unless others of the same place wait; else wait there. `key` is who waits."""
        # Who did not even get to try has others of its own waiting.
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
                # Spread, so that those who wait do not all look at the same moments.
                if not waiter.wait(RETRY_SECONDS * random.uniform(1.0, 1.5)):  # noqa: S311
                    queue.wake_if_idle(place.tenant)
                    continue
                if (error := attempt()) is None:
                    return
                refused = error
                queue.requeue_first(place, waiter)
            raise refused
        finally:
            queue.leave(place, waiter)


def error_for_refusal(held: int) -> DomainError:
    """Say whose lack it is that a call was not admitted, by how many its organization has."""
    return ConcurrencyLimited() if held else ModelsOverloaded()


@dataclass(slots=True, eq=False)
class _Tenant:
    queues: OrderedDict[Hashable, deque[threading.Event]] = field(default_factory=OrderedDict)
    woken_at: float = field(default_factory=time.monotonic)


class _WaitQueue:
    """Those who wait, by organization and credential; `Event`s are set when it is their turn to try."""

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
        """Wait on, as the first of one's organization."""
        with self._lock:
            waiter.clear()
            tenant = self._tenants[key.tenant]
            tenant.queues[key.member].remove(waiter)
            tenant.queues[key.member].appendleft(waiter)
            tenant.queues.move_to_end(key.member, last=False)

    def wake_if_idle(self, name: Hashable) -> None:
        """Let the next of an organization try, if none has for a while."""
        with self._lock:
            tenant = self._tenants[name]
            if time.monotonic() - tenant.woken_at >= RETRY_SECONDS:
                self._wake(tenant)

    def wake_next(self) -> None:
        """Let the first of the next organization try."""
        if not self._tenants:  # as nearly always
            return
        with self._lock:
            if self._tenants:
                name, tenant = self._tenants.popitem(last=False)
                self._tenants[name] = tenant
                self._wake(tenant)

    def leave(self, key: PoolKey, waiter: threading.Event) -> None:
        """Go, and let the next of the organization try."""
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
        tenant.queues.move_to_end(member)
        queue[0].set()
