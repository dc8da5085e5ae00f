"""Calls under limits: each uses one of several credentials, is recorded in the account, and has its refusal checked.

A refusal must come from a limit that covers the call, must name an amount that was set, and must be due to a remainder
smaller than the call's cost.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.chaos.budgets.limits import Budget, Limit, Subject
from tests.chaos.budgets.spending import PRICES, ClientSpending, LimitedCall
from tests.chaos.installation import Installation
from tests.chaos.models.calls import PIECE, CallResult, Manner, PlannedCall, Verdict, make_call
from tests.chaos.models.planned_calls import plan_call
from tests.chaos.retrying_client import GIVE_UP_SECONDS, NoDefiniteResponse, recording_failure

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

    def __init__(self, installation: Installation, name: str, spending: ClientSpending) -> None:
        self.random = installation.chance(name)
        self.observations = installation.observations
        self._fronts = installation.fronts
        self._spending = spending

    def run_until(self, over: threading.Event) -> None:
        """Act until the run is over; finish what has begun."""
        with recording_failure(self.observations, WHO):
            self._go_on(over)

    def verify(self) -> None:
        """Check what this client knows against the service."""

    def act(self) -> None:
        """Perform one action of the client."""
        raise NotImplementedError

    def plan(self, models: Sequence[str] = tuple(PRICES)) -> PlannedCall:
        """Return a random order to one of some models."""
        return plan_call(self.random, self._spending.log.next_number(), models)

    def plan_faultless(self, model: str, pieces: int) -> PlannedCall:
        """Return an order without a scripted fault."""
        script = {"chunks": pieces, "usage": "own chunk"}
        number = self._spending.log.next_number()
        return PlannedCall(number=number, model=model, is_chat=True, manner=Manner.WHOLE, script=script)

    def call(self, credential: Credential, planned_call: PlannedCall) -> CallResult:
        """Make a call and record it."""
        result = make_call(
            self.random.choice(self._fronts),
            credential.token,
            planned_call,
            max_wait_seconds=self.random.uniform(0, ABANDONED_SECONDS),
            headers=credential.headers,
        )
        made = LimitedCall(planned_call=planned_call, result=result, subjects=credential.subjects)
        self._spending.enter(made)
        if result.code in LIMITING:
            self._spending.forbid(planned_call, f"was refused ({result.code})")
        self.observations.count_call(
            f"limited {planned_call.manner}: {result.verdict} {result.code or ''}".rstrip()
        )
        for fault in _faults(made, credential):
            self.observations.violate(f"limited call {planned_call.number} ({planned_call.manner}): {fault}")
        return result

    def forbid(self, planned_call: PlannedCall, why: str) -> None:
        """Record that a call must never reach its upstream, and why."""
        self._spending.forbid(planned_call, why)

    def call_now(self, credential: Credential, model: str, pieces: int) -> CallResult:
        """Make a call after all faults have ended: only a limit can refuse it."""
        gives_up_at = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < gives_up_at:
            result = self.call(credential, self.plan_faultless(model, pieces))
            if result.verdict is Verdict.COMPLETED or result.code in LIMITING:
                return result
            time.sleep(REFUSED_SECONDS)
        raise NoDefiniteResponse(f"no call to {model} is answered in {GIVE_UP_SECONDS:.0f} s")

    def _go_on(self, over: threading.Event) -> None:
        while not over.is_set():
            self.act()
            time.sleep(BREATH_SECONDS)


def _faults(made: LimitedCall, credential: Credential) -> Iterator[str]:
    """Yield what is wrong with the response to a call, considered alone."""
    planned_call, result = made.planned_call, made.result
    yield from result.faults
    if result.status not in (None, HTTPStatus.OK, *STATUSES):
        yield f"answered {result.status} {result.code}"
    if result.verdict is Verdict.COMPLETED and result.text != PIECE * planned_call.chunks:
        yield f"a complete answer of {len(result.text)} bytes instead of {len(PIECE) * planned_call.chunks}"
    if result.code in LIMITING:
        yield from _faults_of_refusal(made, credential)


def _faults_of_refusal(made: LimitedCall, credential: Credential) -> Iterator[str]:
    """Yield what is wrong with a refusal: its limit, its amount, or a remainder that would have covered the cost."""
    error, code = made.result.error, made.result.code
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
