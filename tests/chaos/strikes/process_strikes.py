"""Strikes at the service's processes: SIGKILL, SIGTERM, SIGSTOP for a while, and expired leases."""

import math
import signal
import time
from collections.abc import Sequence

import psutil

from tests.chaos.background_work import BackgroundWork
from tests.chaos.strikes.base import NAP_SECONDS, Chance, Strikes
from tests.chaos.supervised_process import SupervisedProcess

GRACE_SECONDS = 2.0
"""What a process is left alone for once it works, or a busy machine would see nothing but starts."""

MOST_PASSES = 256
"""How often a process may pass the point at which it is to die: once as likely as between 128 times and this."""


class ProcessStrikes(Strikes):
    """Strikes at one of the supervised processes at a time."""

    pause_seconds = (0.1, 1.0)

    def __init__(
        self, supervised: Sequence[SupervisedProcess], background_work: BackgroundWork, chance: Chance
    ) -> None:
        self._supervised = supervised
        self._background_work = background_work
        self._chance = chance

    def arm(self, points: Sequence[str]) -> dict[str, str]:
        """Arm every second process to die between two steps of its work."""
        random = self._chance.random
        if not points or random.random() < 0.5:
            return {}
        passes = int(2 ** random.uniform(0, math.log2(MOST_PASSES))) - 1
        return {"FAULTS": f"{random.choice(points)}={passes}"}

    def strike(self) -> None:
        self._chance.choose(
            (self._kill_service, 12),
            (self._kill_front_child, 3),
            (self._put_to_sleep, 3),
            (self._terminate, 2),
            (self._end_leases, 3),
        )

    def tend(self) -> None:
        """Resume processes whose pause is over."""
        now = time.monotonic()
        for supervised in self._supervised:
            if supervised.asleep_until is not None and now >= supervised.asleep_until:
                supervised.asleep_until = None
                if supervised.service.is_running:
                    supervised.service.send_signal(signal.SIGCONT)

    def mend(self) -> None:
        """Forget the paused processes: all processes restart."""

    def _kill_service(self) -> None:
        if (supervised := self._choose()) is not None:
            self._chance.done[supervised.kind] += 1
            supervised.service.kill()

    def _terminate(self) -> None:
        if (supervised := self._choose()) is not None:
            self._chance.done[f"{supervised.kind} asked to stop"] += 1
            supervised.service.send_signal(signal.SIGTERM)

    def _kill_front_child(self) -> None:
        if (supervised := self._choose(only="web")) is not None:
            for child in psutil.Process(supervised.service.pid).children():
                child.kill()
                self._chance.done["web child"] += 1

    def _put_to_sleep(self) -> None:
        """Pause a process with SIGSTOP: when it resumes, other processes have its leases and locks."""
        if (supervised := self._choose()) is not None and supervised.kind != "web":
            self._chance.done[f"{supervised.kind} put to sleep"] += 1
            supervised.service.send_signal(signal.SIGSTOP)
            supervised.asleep_until = time.monotonic() + self._chance.random.uniform(*NAP_SECONDS)

    def _end_leases(self) -> None:
        self._chance.done["leases ended"] += 1
        self._background_work.expire_leases()

    def _choose(self, only: str | None = None) -> SupervisedProcess | None:
        """Return one of the processes that have had time to begin their work, or None."""
        now = time.monotonic()
        ripe = [
            at
            for at in self._supervised
            if at.service.is_running
            and at.asleep_until is None
            and at.ready_at is not None
            and now - at.ready_at > GRACE_SECONDS
            and only in (None, at.kind)
        ]
        return self._chance.random.choice(ripe) if ripe else None
