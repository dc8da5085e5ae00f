"""Strikes at clocks: processes start with a wrong clock or have it changed; the database's clock stays right."""

import itertools
from collections.abc import Sequence
from pathlib import Path

from tests.chaos.strikes.base import Chance, Strikes
from tests.chaos.supervised_process import SupervisedProcess
from tests.support.processes.wrong_clock import VARIABLE, WrongClock

APART_SECONDS = 30
"""By how much a host's clock may differ from the database's (deploy/README.md#clocks)."""
WRONG_SHARE = 0.5
"""Of processes, those that start with a wrong clock."""


class ClockStrikes(Strikes):
    """Starts processes with clocks of their own, and changes some of them now and then."""

    pause_seconds = (1.0, 4.0)

    def __init__(self, supervised: Sequence[SupervisedProcess], directory: Path, chance: Chance) -> None:
        self._supervised = supervised
        self._directory = directory
        self._chance = chance
        self._numbers = itertools.count()

    def arm(self, points: Sequence[str]) -> dict[str, str]:
        """Return the settings of a clock of its own, wrong or right."""
        del points
        path = self._directory / f"clock-{next(self._numbers)}"
        if self._chance.random.random() < WRONG_SHARE:
            return self._count("clock wrong from the start", WrongClock(path, seconds=self._choose()))
        return WrongClock(path).settings

    def strike(self) -> None:
        """Change the clocks of some running processes, each by another amount."""
        running = [supervised.service for supervised in self._supervised if supervised.service.is_running]
        paths = [service.settings[VARIABLE] for service in running if VARIABLE in service.settings]
        count = self._chance.random.randint(0, len(paths))
        for path in self._chance.random.sample(paths, count):
            self._count("clock set", WrongClock(Path(path), seconds=self._choose()))

    def tend(self) -> None:
        """Do nothing: a clock stays wrong until it is set again."""

    def mend(self) -> None:
        """Do nothing: processes that restart have the right clock."""

    def _choose(self) -> int:
        return self._chance.random.randint(-APART_SECONDS, APART_SECONDS)

    def _count(self, what: str, clock: WrongClock) -> dict[str, str]:
        self._chance.done[what] += 1
        return clock.settings
