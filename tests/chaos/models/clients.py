"""Clients that call models continuously and in every manner, through upstreams that misbehave as real ones do."""

import itertools
import random
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from shared.credits.amounts import format_credits
from tests.chaos.models.calls import PIECE, CallResult, PlannedCall, Verdict, make_call
from tests.chaos.models.planned_calls import plan_call
from tests.chaos.observations import Observations
from tests.chaos.retrying_client import RetryingClient, recording_failure
from tests.support.agents.rest_clients import Client

FIRST_NUMBER = 1_000
ABANDONED_SECONDS = 0.5
BREATH_SECONDS = 0.02
UNREACHED_SECONDS = 0.2
TOP_UP_UCR = (100, 5_000)
STATUSES = (402, 429, 502, 503, 504)
"""What may be answered instead of 200."""


@dataclass(frozen=True, kw_only=True)
class Payer:
    """An organization that pays for calls: a user's key, its models, and whether its credits may run out.

    `operator` adds credits, which an owner may not.
    """

    api_key: str
    owner: Client
    operator: Client
    organization_id: str
    models: Sequence[str]
    is_poor: bool = False


class CallLog:
    """All calls of the clients, and the top-ups that were acknowledged."""

    def __init__(self) -> None:
        self._numbers: Iterator[int] = itertools.count(FIRST_NUMBER)
        self.calls: list[tuple[PlannedCall, CallResult]] = []
        self.topped_up: dict[str, tuple[str, int]] = {}
        """By reference: the organization and the amount."""

    def next_number(self) -> int:
        return next(self._numbers)


class ModelClient:
    """A client thread that pays for its calls with one organization's credits."""

    def __init__(
        self,
        chance: random.Random,
        payer: Payer,
        fronts: Sequence[str],
        log: CallLog,
        retrying_client: RetryingClient,
        observations: Observations,
    ) -> None:
        self._random = chance
        self._payer = payer
        self._fronts = fronts
        self._log = log
        self._retrying_client = retrying_client
        self._observations = observations

    def run_until(self, over: threading.Event) -> None:
        """Make one call after another, and buy credits when they run out."""
        with recording_failure(self._observations, "a client of models"):
            while not over.is_set():
                if self._payer.is_poor and self._random.random() < 0.1:
                    self._top_up()
                else:
                    self._call()
                time.sleep(BREATH_SECONDS)

    def verify(self) -> None:
        """Read the balance; the reconciliation happens elsewhere."""
        answer = self._retrying_client.ask(
            "credits", lambda front: self._payer.owner.request("GET", "/v1/credits", via=front)
        )
        if answer.status_code != 200 or answer.json()["held"] != "0":
            self._observations.violate(f"credits of {self._payer.organization_id}: {answer.text}")

    def _call(self) -> None:
        planned_call = plan_call(self._random, self._log.next_number(), self._payer.models)
        result = make_call(
            self._random.choice(self._fronts),
            self._payer.api_key,
            planned_call,
            max_wait_seconds=self._random.uniform(0, ABANDONED_SECONDS),
        )
        self._log.calls.append((planned_call, result))
        self._observations.count_call(f"{planned_call.manner}: {result.verdict} {result.code or ''}".rstrip())
        if result.status is None:
            time.sleep(UNREACHED_SECONDS)
        for fault in self._faults(planned_call, result):
            self._observations.violate(f"call {planned_call.number} ({planned_call.manner}): {fault}")

    def _faults(self, planned_call: PlannedCall, result: CallResult) -> Iterator[str]:
        """Yield what is wrong with the client's response, considered alone."""
        yield from result.faults
        if result.status not in (None, 200, *STATUSES):
            yield f"answered {result.status} {result.code}"
        if result.status == 402 and not self._payer.is_poor:
            yield "refused for want of credits that are there"
        if result.verdict is Verdict.COMPLETED and result.text != PIECE * planned_call.chunks:
            yield f"a complete answer of {len(result.text)} bytes instead of {len(PIECE) * planned_call.chunks}"
        if result.verdict is Verdict.COMPLETED and result.invocation_id is None:
            yield "a complete answer without its usage"

    def _top_up(self) -> None:
        """Buy credits; at random, twice under the same reference."""
        amount, reference = self._random.randint(*TOP_UP_UCR), f"{self._random.getrandbits(64):x}"
        path = f"/admin/organizations/{self._payer.organization_id}/credits/top-ups"
        body = {"amount": format_credits(amount), "reference": reference}
        for _ in range(self._random.choice((1, 2))):
            answer = self._retrying_client.ask(
                "top-up", lambda front: self._payer.operator.request("POST", path, via=front, json=body)
            )
            if answer.status_code not in (200, 201):
                self._observations.violate(f"top-up {reference}: {answer.status_code} {answer.text}")
        self._log.topped_up[reference] = (self._payer.organization_id, amount)
        self._observations.acknowledge("top-up")
