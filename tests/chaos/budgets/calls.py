"""Calls under limits: made with one of several credentials, noted in the account, and every refusal judged.

A refusal must be by a limit that covers the call, by an amount that was set, and for want of what the call costs.
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
    """A token to call models with, whose budgets its calls count in, and the limits that may refuse them."""

    token: str
    budgeted: Sequence[Subject]
    headers: Mapping[str, str] = field(default_factory=dict)
    limits: list[Limit] = field(default_factory=list)

    @property
    def subjects(self) -> frozenset[str]:
        """The ids of whose calls these are."""
        return frozenset(at.id for at in self.budgeted)


class LimitedClient:
    """A client thread whose calls are limited: it notes them all, and judges every refusal."""

    def __init__(self, installation: Installation, name: str, account: Account) -> None:
        self.random = installation.chance(name)
        self.oracle = installation.oracle
        self._fronts = installation.fronts
        self._account = account

    def run_until(self, over: threading.Event) -> None:
        """Go on until it is over; what was begun is finished."""
        with reported(self.oracle, WHO):
            self._go_on(over)

    def verify(self) -> None:
        """Check what this client knows."""

    def act(self) -> None:
        """Do one thing."""
        raise NotImplementedError

    def order(self, models: Sequence[str] = tuple(PRICES)) -> Order:
        """Make up a call to one of some models."""
        return make_order(self.random, self._account.log.next_number(), models)

    def plain_order(self, model: str, pieces: int) -> Order:
        """Make up a call with which nothing goes wrong."""
        script = {"chunks": pieces, "usage": "own chunk"}
        number = self._account.log.next_number()
        return Order(number=number, model=model, is_chat=True, manner=Manner.WHOLE, script=script)

    def call(self, credential: Credential, order: Order) -> Told:
        """Make a call."""
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
        """Note that a call may never reach its upstream."""
        self._account.forbid(order, why)

    def call_now(self, credential: Credential, model: str, pieces: int) -> Told:
        """Make a call that nothing but a limit can refuse, now that nothing is killed any more."""
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
    """Whatever is wrong with what a client was told, by itself."""
    order, told = made.order, made.told
    yield from told.faults
    if told.status not in (None, HTTPStatus.OK, *STATUSES):
        yield f"answered {told.status} {told.code}"
    if told.verdict is Verdict.COMPLETED and told.text != PIECE * order.chunks:
        yield f"a complete answer of {len(told.text)} bytes instead of {len(PIECE) * order.chunks}"
    if told.code in LIMITING:
        yield from _faults_of_refusal(made, credential)


def _faults_of_refusal(made: LimitedCall, credential: Credential) -> Iterator[str]:
    """A refusal is by a limit of this credential, names one of its amounts, and is for want of what the call costs."""
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
