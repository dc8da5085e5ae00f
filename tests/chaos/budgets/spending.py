"""The clients' own account of spending: every call, its subjects, and its exact cost.

Here a prompt costs nothing and each chunk of a reply costs its model's price. A call therefore holds exactly the cost
of all its chunks. A call that a client has read to its end was charged in full; an interrupted call was charged at
most what its upstream was asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.chaos.models.calls import CallResult, PlannedCall, Verdict
from tests.chaos.models.clients import CallLog
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream

PRICES = {"limited/chat": 2, "limited/responses": 3}
"""µcr for a piece of a reply, and its credits for a million."""


class NotedUpstream(FakeUpstream):
    """An upstream that records the number of each call, also if it refuses the call and reports no usage."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()

    def script_for(self, body: dict[str, Any]) -> Script:
        script = super().script_for(body)
        self.asked.add(script.prompt_tokens)
        return script


@dataclass(frozen=True, kw_only=True)
class LimitedCall:
    """A call, and the ids of all subjects whose budgets count it."""

    planned_call: PlannedCall
    result: CallResult
    subjects: frozenset[str]

    @property
    def cost(self) -> int:
        """Return the cost of a complete call in micro-credits, which is also its hold."""
        return self.planned_call.chunks * PRICES[self.planned_call.model]


class ClientSpending:
    """The account of all clients together."""

    def __init__(self) -> None:
        self.log = CallLog()
        self._calls: list[LimitedCall] = []
        self._forbidden: dict[int, str] = {}

    def enter(self, made: LimitedCall) -> None:
        """Add a call."""
        self.log.calls.append((made.planned_call, made.result))
        self._calls.append(made)

    def forbid(self, planned_call: PlannedCall, why: str) -> None:
        """Record that a call must never reach its upstream, and why."""
        self._forbidden[planned_call.number] = why

    def spent_by(self, subject_id: str, model: str | None, asked: set[int]) -> tuple[int, int]:
        """Return the minimum and maximum micro-credits that the calls of a subject cost."""
        least = most = 0
        for made in self._calls:
            if subject_id not in made.subjects or model not in (None, made.planned_call.model):
                continue
            is_known = made.result.verdict is Verdict.COMPLETED
            least += made.cost if is_known else 0
            most += made.cost if is_known or made.planned_call.number in asked else 0
        return least, most

    def compare(self, asked: set[int]) -> Iterator[str]:
        """Yield every call that reached its upstream although it was refused or forbidden."""
        for number, why in self._forbidden.items():
            if number in asked:
                yield f"a call that {why} was made upstream: {self._told_of(number)}"

    def _told_of(self, number: int) -> LimitedCall:
        return next(made for made in self._calls if made.planned_call.number == number)
