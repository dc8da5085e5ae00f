"""Kills at random, a disk that fills up or is lost, and a keeper that starts again whatever ended, as supervisors do.

Everything is started from the one thread that calls `Monkey.play`, for its processes live as long as that thread.
"""

import contextlib
import math
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import psutil
import redis

from tests.chaos.settling import Settling
from tests.support.rabbitmq import RabbitMQ
from tests.support.small_disks import CannotMount, SmallDisk
from tests.support.stack import Servers, Service

READY = " ready."
"""What a worker logs when it begins to take messages."""
PAUSE_SECONDS = (0.1, 1.0)
SERVERS_PAUSE_SECONDS = (2.0, 8.0)
"""Between strikes at Postgres or Valkey: each stops all work for seconds."""
DISK_PAUSE_SECONDS = (4.0, 9.0)
DISK_FAULT_SECONDS = (0.5, 3.0)
SWEEPS_PAUSE_SECONDS = (1.0, 1.0)
NAP_SECONDS = (0.2, 2.0)
MOST_PASSES = 256
"""How often a process may pass the point at which it is to die: once as likely as between 128 times and this."""
GRACE_SECONDS = 2.0
"""What a process is left alone for once it works, or a busy machine would see nothing but starts."""
LOOK_SECONDS = 0.2
RABBITMQ_SHARE = 0.4
"""Of the strikes at servers, where RabbitMQ is one."""
MakeService = Callable[[str], Service]


@dataclass(slots=True)
class Kept:
    """A process that is to run, how to make it anew, and where it may be armed to die."""

    kind: str
    make: Callable[..., Service]
    points: Sequence[str]
    service: Service
    ready_at: float | None = None
    asleep_until: float | None = None

    def look(self) -> None:
        """Notice that it has begun to work."""
        if self.ready_at is None and self._is_ready():
            self.ready_at = time.monotonic()

    def renew(self, service: Service) -> None:
        """Put a new process in its place, and start it."""
        self.service, self.ready_at, self.asleep_until = service, None, None
        service.start()

    def _is_ready(self) -> bool:
        if self.service.port is not None:
            return self.service.is_answering()
        return self.kind == "beat" or self.service.has_logged(READY)


class Clock:
    """Does something again and again, with a pause of a random length after each time."""

    def __init__(
        self, act: Callable[[], None], pause_seconds: tuple[float, float], chance: random.Random
    ) -> None:
        self._act = act
        self._pause_seconds = pause_seconds
        self._random = chance
        self._wait()

    def tick(self) -> None:
        """Do it if its time has come."""
        if time.monotonic() >= self._due_at:
            self._act()
            self._wait()

    def _wait(self) -> None:
        self._due_at = time.monotonic() + self._random.uniform(*self._pause_seconds)


class Monkey:
    """Keeps a stack's processes running and kills them."""

    def __init__(
        self,
        settling: Settling,
        servers: Servers,
        seed: int,
        *,
        disk: SmallDisk | None = None,
        is_calm: bool = False,
    ) -> None:
        """Kill nothing that is calm, and only keep it running."""
        self._settling = settling
        self._servers = servers
        self._random = random.Random(seed)
        self.kills: Counter[str] = Counter()
        self.kept: list[Kept] = []
        self._is_calm = is_calm
        self._is_resting = is_calm
        self._looked_at = 0.0
        self._disk = disk
        self._disk_is_repaired_at: float | None = None

    def keep(self, kind: str, make: Callable[..., Service], points: Sequence[str] = ()) -> None:
        """Start a process and start it again whenever it ends; `make` takes its settings."""
        kept = Kept(kind=kind, make=make, points=points, service=make(**self._arm(points)))
        kept.service.start()
        self.kept.append(kept)

    def play(self, seconds: float, has_seen_enough: Callable[[], bool] = lambda: False) -> None:
        """Kill and keep for so long, or until enough has happened."""
        over = time.monotonic() + seconds
        clocks = [Clock(self._request_sweeps, SWEEPS_PAUSE_SECONDS, self._random)]
        if not self._is_calm:
            clocks.append(Clock(self._strike_processes, PAUSE_SECONDS, self._random))
            clocks.append(Clock(self._strike_servers, SERVERS_PAUSE_SECONDS, self._random))
            if self._disk is not None:
                clocks.append(Clock(partial(self._strike_disk, self._disk), DISK_PAUSE_SECONDS, self._random))
        while time.monotonic() < over and not has_seen_enough():
            self.tend()
            for clock in clocks:
                clock.tick()
            time.sleep(0.02)

    def rest(self) -> None:
        """Wake what sleeps, and have everything run anew and unarmed."""
        if self._is_calm:
            return
        self._is_resting = True
        self._repair_disk()
        self._restart_servers()
        for kept in self.kept:
            kept.service.kill()
            kept.renew(kept.make())
        for kept in self.kept:
            if kept.service.port is not None:
                kept.service.wait_until_answering()

    def tend(self) -> None:
        """Wake what has slept enough, and start again what has ended."""
        now = time.monotonic()
        if self._disk_is_repaired_at is not None and now >= self._disk_is_repaired_at:
            self._repair_disk()
        for kept in self.kept:
            if kept.asleep_until is not None and now >= kept.asleep_until:
                kept.asleep_until = None
                if kept.service.is_running:
                    kept.service.send_signal(signal.SIGCONT)
            if not kept.service.is_running:
                self._start_again(kept)
        if now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            for kept in self.kept:
                kept.look()

    def _strike_processes(self) -> None:
        self._choose_action(
            (self._kill_service, 12),
            (self._kill_front_child, 3),
            (self._put_to_sleep, 3),
            (self._terminate, 2),
            (self._end_leases, 3),
        )

    def _strike_servers(self) -> None:
        if self._servers.rabbitmq is not None and self._random.random() < RABBITMQ_SHARE:
            self._strike_rabbitmq(self._servers.rabbitmq)
            return
        self._choose_action(
            (self._kill_valkey, 2),
            (self._empty_valkey, 1),
            (self._mute_valkey, 1),
            (self._kill_postgres, 1),
            (self._stop_postgres, 1),
        )

    def _strike_disk(self, disk: SmallDisk) -> None:
        """Fill the disk, make it read-only or lose it, for a while."""
        strikes: dict[str, Callable[[], None]] = {
            "disk full to the last byte": disk.fill,
            "disk full to its reserve": partial(disk.fill, leaving_bytes=4 << 20),
            "disk made read-only": disk.make_read_only,
            "disk lost": disk.lose,
        }
        name = self._random.choice(list(strikes))
        self.kills[name] += 1
        with contextlib.suppress(CannotMount):  # somebody writes all the time: then it stays as it is
            strikes[name]()
        self._disk_is_repaired_at = time.monotonic() + self._random.uniform(*DISK_FAULT_SECONDS)

    def _repair_disk(self) -> None:
        self._disk_is_repaired_at = None
        if self._disk is not None:
            self._disk.repair()

    def _choose_action(self, *actions: tuple[Callable[[], None], int]) -> None:
        self._random.choices([action for action, _ in actions], [weight for _, weight in actions])[0]()

    def _request_sweeps(self) -> None:
        if self._servers.valkey.is_ready():
            self._settling.request_sweeps()

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
            and at.ready_at is not None
            and now - at.ready_at > GRACE_SECONDS
            and only in (None, at.kind)
        ]
        return self._random.choice(ripe) if ripe else None

    def _end_leases(self) -> None:
        self.kills["leases ended"] += 1
        self._settling.let_leases_end()

    def _strike_rabbitmq(self, rabbitmq: RabbitMQ) -> None:
        """Kill the broker, or let it take nothing for a while."""
        strike = self._random.choice(("killed", "mute", "in alarm"))
        self.kills[f"rabbitmq {strike}"] += 1
        if strike == "killed":
            rabbitmq.kill()
            rabbitmq.start_again()
            return
        with rabbitmq.mute() if strike == "mute" else rabbitmq.in_alarm():
            time.sleep(self._random.uniform(*NAP_SECONDS))

    def _kill_valkey(self) -> None:
        lose_memory = self._random.random() < 0.5
        valkey = self._random.choice(self._servers.valkeys)
        self.kills[f"{valkey.name}, memory lost" if lose_memory else valkey.name] += 1
        valkey.kill()
        time.sleep(self._random.uniform(0, 0.5))
        valkey.start(lose_memory=lose_memory)

    def _empty_valkey(self) -> None:
        valkey = self._random.choice(self._servers.valkeys)
        self.kills[f"{valkey.name} emptied"] += 1
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(valkey.url) as client:
            client.flushall()

    def _mute_valkey(self) -> None:
        valkey = self._random.choice(self._servers.valkeys)
        self.kills[f"{valkey.name} put to sleep"] += 1
        process = valkey._process
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
        for valkey in self._servers.valkeys:
            if not valkey.is_ready():
                valkey.kill()
                valkey.start()
        if not self._servers.postgres.is_ready():
            self._servers.postgres.kill()
            self._servers.postgres.start()

    def _start_again(self, kept: Kept) -> None:
        if kept.service.returncode == -signal.SIGKILL and "FAULTS" in kept.service.settings:
            self.kills[f"{kept.kind} armed"] += 1
        kept.renew(kept.make(**self._arm(kept.points)))

    def _arm(self, points: Sequence[str]) -> dict[str, str]:
        """Choose the environment of a new process: every other one is to die between two steps of its work."""
        if self._is_resting or not points or self._random.random() < 0.5:
            return {}
        passes = int(2 ** self._random.uniform(0, math.log2(MOST_PASSES))) - 1
        return {"FAULTS": f"{self._random.choice(points)}={passes}"}
