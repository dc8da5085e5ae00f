"""The clients' own account of what was spent: every call by whom it was made, and what it costs to the unit.

A prompt costs nothing here and a piece of a reply its model's price, so a call holds exactly what all of its pieces
cost. What a client has read to its end was charged; of what it lost sight of, as much as its upstream was asked for.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.chaos.models.calls import Order, Told, Verdict
from tests.chaos.models.clients import CallLog
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream

PRICES = {"limited/chat": 2, "limited/responses": 3}
"""µcr for a piece of a reply, and its credits for a million."""


class NotedUpstream(FakeUpstream):
    """An upstream that notes the number of each call it was asked for, also where it refuses and reports nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[int] = set()

    def script_for(self, body: dict[str, Any]) -> Script:
        script = super().script_for(body)
        self.asked.add(script.prompt_tokens)
        return script


@dataclass(frozen=True, kw_only=True)
class LimitedCall:
    """A call, and the ids of all whose budgets it counts in."""

    order: Order
    told: Told
    subjects: frozenset[str]

    @property
    def cost(self) -> int:
        """What it costs, and holds, where it goes well."""
        return self.order.chunks * PRICES[self.order.model]


class Account:
    """What all clients have made."""

    def __init__(self) -> None:
        self.log = CallLog()
        self._calls: list[LimitedCall] = []
        self._forbidden: dict[int, str] = {}

    def enter(self, made: LimitedCall) -> None:
        """Note a call."""
        self.log.calls.append((made.order, made.told))
        self._calls.append(made)

    def forbid(self, order: Order, why: str) -> None:
        """Note that a call may never reach its upstream."""
        self._forbidden[order.number] = why

    def spent_by(self, subject_id: str, model: str | None, asked: set[int]) -> tuple[int, int]:
        """Give the least and the most µcr that calls of a subject cost."""
        least = most = 0
        for made in self._calls:
            if subject_id not in made.subjects or model not in (None, made.order.model):
                continue
            is_known = made.told.verdict is Verdict.COMPLETED
            least += made.cost if is_known else 0
            most += made.cost if is_known or made.order.number in asked else 0
        return least, most

    def compare(self, asked: set[int]) -> Iterator[str]:
        """Give every call that was refused, or may not have been made, and reached its upstream."""
        for number, why in self._forbidden.items():
            if number in asked:
                yield f"a call that {why} was made upstream: {self._told_of(number)}"

    def _told_of(self, number: int) -> LimitedCall:
        return next(made for made in self._calls if made.order.number == number)
