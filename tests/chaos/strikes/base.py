"""What every kind of fault is to the monkey: a strike now and then, and its end."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol

KINDS = ("processes", "clocks", "servers", "messages", "links", "answers", "disk")
"""What a run strikes at."""
NAP_SECONDS = (0.2, 2.0)
"""For how long what is put to sleep sleeps."""


class Strikes(Protocol):
    """Faults of one kind; each strike counts itself."""

    pause_seconds: tuple[float, float]
    """Between two strikes."""

    def arm(self, points: Sequence[str]) -> dict[str, str]:
        """Give settings for a new process, which passes these points of its work."""
        del points
        return {}

    def strike(self) -> None:
        """Do harm; for a moment at the most before it returns."""

    def tend(self) -> None:
        """End the harm that has lasted long enough."""

    def mend(self) -> None:
        """End all harm."""


class Chance:
    """The chance of one run, and the count of what it brought about."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()

    def choose(self, *actions: tuple[Callable[[], None], int]) -> None:
        """Do one of these, each as often as its weight says."""
        self.random.choices([action for action, _ in actions], [weight for _, weight in actions])[0]()
