"""Strikes at the service's processes: SIGKILL, SIGTERM, SIGSTOP for a while, and expired leases."""

import math
import signal
import time
from collections.abc import Sequence

import psutil

from tests.chaos.kept import Kept
from tests.chaos.settling import Settling
from tests.chaos.strikes.base import NAP_SECONDS, Chance, Strikes

GRACE_SECONDS = 2.0
"""What a process is left alone for once it works, or a busy machine would see nothing but starts."""

MOST_PASSES = 256
"""How often a process may pass the point at which it is to die: once as likely as between 128 times and this."""


class ProcessStrikes(Strikes):
    """Strikes at one of the supervised processes at a time."""

    pause_seconds = (0.1, 1.0)

    def __init__(self, kept: Sequence[Kept], settling: Settling, chance: Chance) -> None:
        self._kept = kept
        self._settling = settling
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
        for kept in self._kept:
            if kept.asleep_until is not None and now >= kept.asleep_until:
                kept.asleep_until = None
                if kept.service.is_running:
                    kept.service.send_signal(signal.SIGCONT)

    def mend(self) -> None:
        """Forget the paused processes: all processes restart."""

    def _kill_service(self) -> None:
        if (kept := self._choose()) is not None:
            self._chance.done[kept.kind] += 1
            kept.service.kill()

    def _terminate(self) -> None:
        if (kept := self._choose()) is not None:
            self._chance.done[f"{kept.kind} asked to stop"] += 1
            kept.service.send_signal(signal.SIGTERM)

    def _kill_front_child(self) -> None:
        if (kept := self._choose(only="web")) is not None:
            for child in psutil.Process(kept.service.pid).children():
                child.kill()
                self._chance.done["web child"] += 1

    def _put_to_sleep(self) -> None:
        """Pause a process with SIGSTOP: when it resumes, other processes have its leases and locks."""
        if (kept := self._choose()) is not None and kept.kind != "web":
            self._chance.done[f"{kept.kind} put to sleep"] += 1
            kept.service.send_signal(signal.SIGSTOP)
            kept.asleep_until = time.monotonic() + self._chance.random.uniform(*NAP_SECONDS)

    def _end_leases(self) -> None:
        self._chance.done["leases ended"] += 1
        self._settling.expire_leases()

    def _choose(self, only: str | None = None) -> Kept | None:
        """Return one of the processes that have had time to begin their work, or None."""
        now = time.monotonic()
        ripe = [
            at
            for at in self._kept
            if at.service.is_running
            and at.asleep_until is None
            and at.ready_at is not None
            and now - at.ready_at > GRACE_SECONDS
            and only in (None, at.kind)
        ]
        return self._chance.random.choice(ripe) if ripe else None
