"""The interface of every kind of fault: the monkey begins a strike now and then, and ends it."""

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
        """Return settings that arm a new process for some of these fault points."""
        del points
        return {}

    def strike(self) -> None:
        """Inject a fault; return at once or after a moment."""

    def tend(self) -> None:
        """End the faults whose time is over."""

    def mend(self) -> None:
        """End all faults."""


class Chance:
    """The random generator of a run, and the counts of injected faults."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.done: Counter[str] = Counter()

    def choose(self, *actions: tuple[Callable[[], None], int]) -> None:
        """Perform one of these actions, chosen by weight."""
        self.random.choices([action for action, _ in actions], [weight for _, weight in actions])[0]()
