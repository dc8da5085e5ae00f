"""Strikes at messages: duplicated, delayed, reordered, or delivered again while or after the work is done.

For a moment an additional consumer takes pending messages (`interceptors`). It sends each of them twice, or keeps one
copy or the only one for later. A message is only a wake-up: no acknowledged result may depend on its delivery.
"""

import contextlib
import heapq
import itertools
import time
from collections.abc import Callable, Sequence

from tests.chaos.strikes.base import Chance, Strikes
from tests.chaos.strikes.interceptors import BrokerUnavailable, InterceptedMessage, Interceptor

TAKING_SECONDS = 0.15
LATE_SECONDS = (0.1, 8.0)
AGAIN_SECONDS = 0.5
"""After which a message is put that found the broker away."""
MOST_HELD = 500


class MessageStrikes(Strikes):
    """Holds messages back and sends them again."""

    pause_seconds = (0.1, 0.5)

    def __init__(self, interceptors: Sequence[Interceptor], chance: Chance) -> None:
        self._interceptors = interceptors
        self._chance = chance
        self._held: list[tuple[float, int, Interceptor, InterceptedMessage]] = []
        self._number = itertools.count()

    def strike(self) -> None:
        """Consume from each broker for a moment."""
        for interceptor in self._interceptors:
            self._consume(interceptor)

    def tend(self) -> None:
        """Send the messages whose delay is over."""
        while self._held and self._held[0][0] <= time.monotonic():
            self._put_next()

    def mend(self) -> None:
        """Send all messages; those that the broker refuses are lost."""
        while self._held:
            _, _, interceptor, taken = heapq.heappop(self._held)
            with contextlib.suppress(BrokerUnavailable):
                interceptor.put(taken)

    def _consume(self, interceptor: Interceptor) -> None:
        over = time.monotonic() + TAKING_SECONDS
        with contextlib.suppress(BrokerUnavailable):
            while time.monotonic() < over and len(self._held) < MOST_HELD:
                if (taken := interceptor.take()) is not None:
                    self._divert(interceptor, taken)

    def _divert(self, interceptor: Interceptor, taken: InterceptedMessage) -> None:
        self._chance.choose(
            (self._counted("doubled", interceptor, taken, (0.0, 0.0)), 2),
            (self._counted("sent again", interceptor, taken, (0.0, self._later())), 3),
            (self._counted("late", interceptor, taken, (self._later(),)), 3),
            (self._counted("late and doubled", interceptor, taken, (self._later(), self._later())), 1),
        )

    def _counted(
        self, what: str, interceptor: Interceptor, taken: InterceptedMessage, delays: Sequence[float]
    ) -> Callable[[], None]:
        def hold() -> None:
            self._chance.done[f"{interceptor.message_kind} {what}"] += 1
            for seconds in delays:
                self._hold(interceptor, taken, seconds)
            self.tend()

        return hold

    def _later(self) -> float:
        return self._chance.random.uniform(*LATE_SECONDS)

    def _hold(self, interceptor: Interceptor, taken: InterceptedMessage, seconds: float) -> None:
        heapq.heappush(self._held, (time.monotonic() + seconds, next(self._number), interceptor, taken))

    def _put_next(self) -> None:
        _, _, interceptor, taken = heapq.heappop(self._held)
        try:
            interceptor.put(taken)
        except BrokerUnavailable:
            self._hold(interceptor, taken, AGAIN_SECONDS)
