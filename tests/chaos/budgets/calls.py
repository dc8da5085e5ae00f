"""Calls under limits: each uses one of several credentials, is recorded in the account, and has its refusal checked.

A refusal must come from a limit that covers the call, must name an amount that was set, and must be due to a remainder
smaller than the call's cost.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.chaos.budgets.account import PRICES, Account, LimitedCall
from tests.chaos.budgets.limits import Budget, Limit, Subject
from tests.chaos.installation import Installation
from tests.chaos.models.calls import PIECE, Manner, Order, Told, Verdict, make_call
from tests.chaos.models.orders import make_order
from tests.chaos.patience import GIVE_UP_SECONDS, NeverAnswered, reported

WHO = "a client of budgets"
ABANDONED_SECONDS = 0.5
BREATH_SECONDS = 0.02
REFUSED_SECONDS = 0.1
STATUSES = (402, 429, 502, 503, 504)
"""What may be answered instead of 200."""
LIMITING = ("budget_exceeded", "rate_limit_exceeded", "insufficient_credits")


@dataclass(frozen=True, kw_only=True)
class Credential:
    """A token for model calls, the subjects whose budgets count them, and the limits that may refuse them."""

    token: str
    budgeted: Sequence[Subject]
    headers: Mapping[str, str] = field(default_factory=dict)
    limits: list[Limit] = field(default_factory=list)

    @property
    def subjects(self) -> frozenset[str]:
        """Return the ids of the subjects of these calls."""
        return frozenset(at.id for at in self.budgeted)


class LimitedClient:
    """A client thread with limited calls: it records each call and checks every refusal."""

    def __init__(self, installation: Installation, name: str, account: Account) -> None:
        self.random = installation.chance(name)
        self.oracle = installation.oracle
        self._fronts = installation.fronts
        self._account = account

    def run_until(self, over: threading.Event) -> None:
        """Act until the run is over; finish what has begun."""
        with reported(self.oracle, WHO):
            self._go_on(over)

    def verify(self) -> None:
        """Check what this client knows against the service."""

    def act(self) -> None:
        """Perform one action of the client."""
        raise NotImplementedError

    def order(self, models: Sequence[str] = tuple(PRICES)) -> Order:
        """Return a random order to one of some models."""
        return make_order(self.random, self._account.log.next_number(), models)

    def plain_order(self, model: str, pieces: int) -> Order:
        """Return an order without a scripted fault."""
        script = {"chunks": pieces, "usage": "own chunk"}
        number = self._account.log.next_number()
        return Order(number=number, model=model, is_chat=True, manner=Manner.WHOLE, script=script)

    def call(self, credential: Credential, order: Order) -> Told:
        """Make a call and record it."""
        told = make_call(
            self.random.choice(self._fronts),
            credential.token,
            order,
            max_wait_seconds=self.random.uniform(0, ABANDONED_SECONDS),
            headers=credential.headers,
        )
        made = LimitedCall(order=order, told=told, subjects=credential.subjects)
        self._account.enter(made)
        if told.code in LIMITING:
            self._account.forbid(order, f"was refused ({told.code})")
        self.oracle.count_call(f"limited {order.manner}: {told.verdict} {told.code or ''}".rstrip())
        for fault in _faults(made, credential):
            self.oracle.violate(f"limited call {order.number} ({order.manner}): {fault}")
        return told

    def forbid(self, order: Order, why: str) -> None:
        """Record that a call must never reach its upstream, and why."""
        self._account.forbid(order, why)

    def call_now(self, credential: Credential, model: str, pieces: int) -> Told:
        """Make a call after all faults have ended: only a limit can refuse it."""
        gives_up_at = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < gives_up_at:
            told = self.call(credential, self.plain_order(model, pieces))
            if told.verdict is Verdict.COMPLETED or told.code in LIMITING:
                return told
            time.sleep(REFUSED_SECONDS)
        raise NeverAnswered(f"no call to {model} is answered in {GIVE_UP_SECONDS:.0f} s")

    def _go_on(self, over: threading.Event) -> None:
        while not over.is_set():
            self.act()
            time.sleep(BREATH_SECONDS)


def _faults(made: LimitedCall, credential: Credential) -> Iterator[str]:
    """Yield what is wrong with the response to a call, considered alone."""
    order, told = made.order, made.told
    yield from told.faults
    if told.status not in (None, HTTPStatus.OK, *STATUSES):
        yield f"answered {told.status} {told.code}"
    if told.verdict is Verdict.COMPLETED and told.text != PIECE * order.chunks:
        yield f"a complete answer of {len(told.text)} bytes instead of {len(PIECE) * order.chunks}"
    if told.code in LIMITING:
        yield from _faults_of_refusal(made, credential)


def _faults_of_refusal(made: LimitedCall, credential: Credential) -> Iterator[str]:
    """Yield what is wrong with a refusal: its limit, its amount, or a remainder that would have covered the cost."""
    error, code = made.told.error, made.told.code
    named = error.get("budget_id")
    limits = [at for at in credential.limits if code in at.refusals and getattr(at, "id", None) == named]
    if not limits:
        yield f"refused by what does not limit it: {error}"
    elif isinstance(limits[0], Budget):
        required, remaining = error["required"], error["remaining"]
        if limits[0].counted(remaining) >= limits[0].counted(required):
            yield f"refused, and there was enough: {error}"
        if limits[0].counted(error["amount"]) not in limits[0].amounts:
            yield f"refused by an amount that was never set: {error}"
        if limits[0].unit == "credits" and limits[0].counted(required) != made.cost:
            yield f"refused, and it costs {made.cost}: {error}"
