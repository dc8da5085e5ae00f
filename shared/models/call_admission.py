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
from shared.models.providers.concurrency import ModelSlots
from shared.runtime.periodic_thread import PeriodicThread

TRY_AGAIN_SECONDS = 0.25
WAITING_ROOM = 1024
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
        self._patience_seconds = max_wait_seconds
        self._shares = shares
        self.slots = slots
        self._line = _Line()
        self._line_of_models = _Line()
        self._room = Pool("model_calls_waiting", WAITING_ROOM)
        self._left: deque[UUID] = deque()
        self._leaver = PeriodicThread(
            self._give_back, name="left-model-slots", pause_seconds=0.0, has_work=lambda: self._left
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
        gives_up_at = time.monotonic() + max(0.0, self._patience_seconds - waited_seconds)
        if limit is not None:
            take = partial(
                self.try_to_take,
                invocation.id,
                invocation.organization_id,
                model=invocation.model,
                limit=limit,
            )
            place = PoolKey((key.tenant, invocation.model), key.member)
            self._admit(take, self._line_of_models, place, key, gives_up_at)
        self._admit(partial(self.try_to_hold, invocation), self._line, key, key, gives_up_at)

    def try_to_take(
        self, call_id: UUID, organization_id: UUID, *, model: str, limit: int
    ) -> DomainError | None:
        """Take one of a model's slots for a call if it is its organization's turn; else give the refusal."""
        held = self.slots.try_to_take(call_id, organization_id, model=model, limit=limit)
        return None if held is None else refusal(held)

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
            return refusal(at_share.open_calls)
        return None

    def end(self, call_id: UUID) -> None:
        """Note that a call has ended, or is not waited for any more, and let the next organization in turn try.

        Waits for no server: a slot of a model with a limit is given back by a thread of its own.
        """
        self._shares.end(call_id)
        self._line.wake_next()
        if self.slots.leave(call_id):
            self._left.append(call_id)
            self._leaver.wake()

    def _give_back(self) -> None:
        """Give back the slots that were left, and let the next in line for one try."""
        while self._left:
            self.slots.give_back(self._left.popleft())
            self._line_of_models.wake_next()

    def _admit(self, attempt: Attempt, line: _Line, place: PoolKey, key: PoolKey, gives_up_at: float) -> None:
        """Try now, unless others of the same place wait; else wait there. `key` is who waits."""
        # Who did not even get to try has others of its own waiting.
        refused: DomainError = ConcurrencyLimited()
        if not line.has(place.tenant):
            if (told := attempt()) is None:
                return
            refused = told
        seat = self._room.try_acquire(key)
        if seat is None:
            raise refused
        with seat:
            self._wait(attempt, line, place, refused, gives_up_at)

    def _wait(
        self, attempt: Attempt, line: _Line, place: PoolKey, refused: DomainError, gives_up_at: float
    ) -> None:
        turn = line.enter(place)
        try:
            while time.monotonic() < gives_up_at:
                # Spread, so that those who wait do not all look at the same moments.
                if not turn.wait(TRY_AGAIN_SECONDS * random.uniform(1.0, 1.5)):  # noqa: S311
                    line.wake_if_quiet(place.tenant)
                    continue
                if (told := attempt()) is None:
                    return
                refused = told
                line.try_later(place, turn)
            raise refused
        finally:
            line.leave(place, turn)


def refusal(held: int) -> DomainError:
    """Say whose lack it is that a call was not admitted, by how many its organization has."""
    return ConcurrencyLimited() if held else ModelsOverloaded()


@dataclass(slots=True, eq=False)
class _Tenant:
    queues: OrderedDict[Hashable, deque[threading.Event]] = field(default_factory=OrderedDict)
    woken_at: float = field(default_factory=time.monotonic)


class _Line:
    """Those who wait, by organization and credential; `Event`s are set when it is their turn to try."""

    def __init__(self) -> None:
        self._tenants: OrderedDict[Hashable, _Tenant] = OrderedDict()
        self._lock = threading.Lock()

    def has(self, tenant: Hashable) -> bool:
        return tenant in self._tenants

    def enter(self, key: PoolKey) -> threading.Event:
        turn = threading.Event()
        with self._lock:
            queues = self._tenants.setdefault(key.tenant, _Tenant()).queues
            queues.setdefault(key.member, deque()).append(turn)
        return turn

    def try_later(self, key: PoolKey, turn: threading.Event) -> None:
        """Wait on, as the first of one's organization."""
        with self._lock:
            turn.clear()
            tenant = self._tenants[key.tenant]
            tenant.queues[key.member].remove(turn)
            tenant.queues[key.member].appendleft(turn)
            tenant.queues.move_to_end(key.member, last=False)

    def wake_if_quiet(self, name: Hashable) -> None:
        """Let the next of an organization try, if none has for a while."""
        with self._lock:
            tenant = self._tenants[name]
            if time.monotonic() - tenant.woken_at >= TRY_AGAIN_SECONDS:
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

    def leave(self, key: PoolKey, turn: threading.Event) -> None:
        """Go, and let the next of the organization try."""
        with self._lock:
            tenant = self._tenants[key.tenant]
            queue = tenant.queues[key.member]
            queue.remove(turn)
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
