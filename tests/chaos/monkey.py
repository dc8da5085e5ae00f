"""Kills at random, and a keeper that starts again whatever ended, as a supervisor would.

Everything is started from the one thread that calls `Monkey.play`, for its processes live as long as that thread.
"""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from tests.support.inventory import let_leases_end, request_sweeps
from tests.support.stack import Servers, Service, Stack

PAUSE_SECONDS = (0.1, 1.0)
NAP_SECONDS = (0.2, 2.0)
PASSES = 12
GRACE_SECONDS = 2.0
"""What a process is left alone for after its start, or a busy machine would see nothing but starts."""
WEB_POINTS = (
    *("upload.begun", "upload.opened", "upload.received", "upload.sealed", "upload.before_commit"),
    *("upload.committed", "jobs.before_publish", "delete.before_commit", "delete.committed"),
    *("renew.before_commit", "renew.committed"),
)
FILES_POINTS = ("placement.claimed", "placement.placed", "placement.recorded")
BACKGROUND_POINTS = (
    *("collection.claimed", "collection.removed", "collection.recorded"),
    *("expiry.before_commit", "expiry.expired", "sweep.doomed", "sweep.discarded"),
)
MakeService = Callable[[str], Service]


@dataclass(slots=True)
class Kept:
    """A process that is to run, how to make it anew, and where it may be armed to die."""

    kind: str
    make: Callable[..., Service]
    points: tuple[str, ...]
    service: Service
    started_at: float = field(default_factory=time.monotonic)
    asleep_until: float | None = None


class Monkey:
    """Keeps a stack's processes running and kills them."""

    def __init__(self, stack: Stack, servers: Servers, seed: int) -> None:
        self._stack = stack
        self._servers = servers
        self._random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.kept: list[Kept] = []
        self._is_resting = False

    def keep(self, kind: str, make: Callable[..., Service], points: tuple[str, ...] = ()) -> None:
        """Start a process and start it again whenever it ends; `make` takes its settings."""
        kept = Kept(kind=kind, make=make, points=points, service=make(**self._arm(points)))
        kept.service.start()
        self.kept.append(kept)

    def play(self, seconds: float) -> None:
        """Kill and keep for so long."""
        over = time.monotonic() + seconds
        next_at = sweeps_at = 0.0
        while (now := time.monotonic()) < over:
            self.tend()
            if now >= sweeps_at and self._servers.valkey.is_ready():
                request_sweeps(self._stack)
                sweeps_at = now + 1.0
            if now >= next_at:
                self._strike()
                next_at = time.monotonic() + self._random.uniform(*PAUSE_SECONDS)
            time.sleep(0.02)

    def rest(self) -> None:
        """Wake what sleeps, and have everything run anew and unarmed."""
        self._is_resting = True
        self._restart_servers()
        for kept in self.kept:
            kept.service.kill()
            kept.service = kept.make()
            kept.service.start()
        for kept in self.kept:
            if kept.service.port is not None:
                kept.service.wait_until_answering()

    def tend(self) -> None:
        """Wake what has slept enough, and start again what has ended."""
        now = time.monotonic()
        for kept in self.kept:
            if kept.asleep_until is not None and now >= kept.asleep_until:
                kept.asleep_until = None
                if kept.service.is_running:
                    kept.service.send_signal(signal.SIGCONT)
            if not kept.service.is_running:
                self._start_again(kept)

    def _strike(self) -> None:
        actions = (
            (self._kill_service, 12),
            (self._kill_front_child, 3),
            (self._put_to_sleep, 3),
            (self._terminate, 2),
            (self._end_leases, 3),
            (self._kill_valkey, 2),
            (self._mute_valkey, 1),
            (self._kill_postgres, 1),
            (self._stop_postgres, 1),
        )
        self._random.choices([action for action, _ in actions], [weight for _, weight in actions])[0]()

    def _kill_service(self) -> None:
        if (kept := self._choose()) is not None:
            self.kills[kept.kind] += 1
            kept.service.kill()

    def _terminate(self) -> None:
        if (kept := self._choose()) is not None:
            self.kills[f"{kept.kind} asked to stop"] += 1
            kept.service.send_signal(signal.SIGTERM)

    def _kill_front_child(self) -> None:
        if (kept := self._choose(only="web")) is not None:
            for child in psutil.Process(kept.service.pid).children():
                child.kill()
                self.kills["web child"] += 1

    def _put_to_sleep(self) -> None:
        """Stop a process for a while: it wakes as one whose leases and locks have gone to others."""
        if (kept := self._choose()) is not None and kept.kind != "web":
            self.kills[f"{kept.kind} put to sleep"] += 1
            kept.service.send_signal(signal.SIGSTOP)
            kept.asleep_until = time.monotonic() + self._random.uniform(*NAP_SECONDS)

    def _choose(self, only: str | None = None) -> Kept | None:
        """Choose one of the processes that have had time to begin their work."""
        now = time.monotonic()
        ripe = [
            at
            for at in self.kept
            if at.service.is_running
            and at.asleep_until is None
            and now - at.started_at > GRACE_SECONDS
            and only in (None, at.kind)
        ]
        return self._random.choice(ripe) if ripe else None

    def _end_leases(self) -> None:
        self.kills["leases ended"] += 1
        let_leases_end(self._stack)

    def _kill_valkey(self) -> None:
        lose_memory = self._random.random() < 0.5
        self.kills["valkey, memory lost" if lose_memory else "valkey"] += 1
        self._servers.valkey.kill()
        time.sleep(self._random.uniform(0, 0.5))
        self._servers.valkey.start(lose_memory=lose_memory)

    def _mute_valkey(self) -> None:
        self.kills["valkey put to sleep"] += 1
        process = self._servers.valkey._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._random.uniform(*NAP_SECONDS))
        process.send_signal(signal.SIGCONT)

    def _kill_postgres(self) -> None:
        self.kills["postgres"] += 1
        self._servers.postgres.kill()
        self._servers.postgres.start()

    def _stop_postgres(self) -> None:
        self.kills["postgres asked to stop"] += 1
        self._servers.postgres.stop()
        self._servers.postgres.start()

    def _restart_servers(self) -> None:
        if not self._servers.valkey.is_ready():
            self._servers.valkey.kill()
            self._servers.valkey.start()
        if not self._servers.postgres.is_ready():
            self._servers.postgres.kill()
            self._servers.postgres.start()

    def _start_again(self, kept: Kept) -> None:
        if kept.service.returncode == -signal.SIGKILL and "FAULTS" in kept.service.settings:
            self.kills[f"{kept.kind} armed"] += 1
        kept.asleep_until = None
        kept.service = kept.make(**self._arm(kept.points))
        kept.service.start()
        kept.started_at = time.monotonic()

    def _arm(self, points: tuple[str, ...]) -> dict[str, str]:
        """Choose the environment of a new process: every other one is to die between two steps of its work."""
        if self._is_resting or not points or self._random.random() < 0.5:
            return {}
        return {"FAULTS": f"{self._random.choice(points)}={self._random.randrange(PASSES)}"}
