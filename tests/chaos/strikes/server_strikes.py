"""Strikes at the servers: Postgres, Valkey, RabbitMQ, and the disk of the blob store."""

import contextlib
import signal
import time
from collections.abc import Callable
from functools import partial

import redis

from tests.chaos.strikes.base import NAP_SECONDS, Chance, Strikes
from tests.support.processes.stack import Servers
from tests.support.servers.rabbitmq import RabbitMQ
from tests.support.servers.small_disks import CannotMount, SmallDisk

DISK_FAULT_SECONDS = (0.5, 3.0)
RABBITMQ_SHARE = 0.4
"""Of the strikes at servers, where RabbitMQ is one."""


class ServerStrikes(Strikes):
    """Kills servers, empties them and pauses them."""

    pause_seconds = (2.0, 8.0)
    """Each strike stops all work for seconds."""

    def __init__(self, servers: Servers, chance: Chance) -> None:
        self._servers = servers
        self._chance = chance

    def strike(self) -> None:
        random = self._chance.random
        if self._servers.rabbitmq is not None and random.random() < RABBITMQ_SHARE:
            self._strike_rabbitmq(self._servers.rabbitmq)
            return
        self._chance.choose(
            (self._kill_valkey, 2),
            (self._empty_valkey, 1),
            (self._mute_valkey, 1),
            (self._kill_postgres, 1),
            (self._stop_postgres, 1),
        )

    def tend(self) -> None:
        """Do nothing: every strike ends by itself."""

    def mend(self) -> None:
        for valkey in self._servers.valkeys:
            if not valkey.is_ready():
                valkey.kill()
                valkey.start()
        if not self._servers.postgres.is_ready():
            self._servers.postgres.kill()
            self._servers.postgres.start()

    def _strike_rabbitmq(self, rabbitmq: RabbitMQ) -> None:
        """Kill the broker, or have it accept no messages for a while."""
        strike = self._chance.random.choice(("killed", "mute", "in alarm"))
        self._chance.done[f"rabbitmq {strike}"] += 1
        if strike == "killed":
            rabbitmq.kill()
            rabbitmq.start_again()
            return
        with rabbitmq.mute() if strike == "mute" else rabbitmq.in_alarm():
            time.sleep(self._chance.random.uniform(*NAP_SECONDS))

    def _kill_valkey(self) -> None:
        random = self._chance.random
        discards_data = random.random() < 0.5
        valkey = random.choice(self._servers.valkeys)
        self._chance.done[f"{valkey.name}, memory lost" if discards_data else valkey.name] += 1
        valkey.kill()
        time.sleep(random.uniform(0, 0.5))
        valkey.start(discards_data=discards_data)

    def _empty_valkey(self) -> None:
        valkey = self._chance.random.choice(self._servers.valkeys)
        self._chance.done[f"{valkey.name} emptied"] += 1
        with contextlib.suppress(redis.RedisError), redis.Redis.from_url(valkey.url) as client:
            client.flushall()

    def _mute_valkey(self) -> None:
        valkey = self._chance.random.choice(self._servers.valkeys)
        self._chance.done[f"{valkey.name} put to sleep"] += 1
        process = valkey._process
        assert process is not None
        process.send_signal(signal.SIGSTOP)
        time.sleep(self._chance.random.uniform(*NAP_SECONDS))
        process.send_signal(signal.SIGCONT)

    def _kill_postgres(self) -> None:
        self._chance.done["postgres"] += 1
        self._servers.postgres.kill()
        self._servers.postgres.start()

    def _stop_postgres(self) -> None:
        self._chance.done["postgres asked to stop"] += 1
        self._servers.postgres.stop()
        self._servers.postgres.start()


class DiskStrikes(Strikes):
    """Fills the disk, makes it read-only or unmounts it, for a while."""

    pause_seconds = (4.0, 9.0)

    def __init__(self, disk: SmallDisk, chance: Chance) -> None:
        self._disk = disk
        self._chance = chance
        self._is_repaired_at: float | None = None

    def strike(self) -> None:
        strikes: dict[str, Callable[[], None]] = {
            "disk full to the last byte": self._disk.fill,
            "disk full to its reserve": partial(self._disk.fill, leaving_bytes=4 << 20),
            "disk made read-only": self._disk.make_read_only,
            "disk lost": self._disk.lose,
        }
        name = self._chance.random.choice(list(strikes))
        self._chance.done[name] += 1
        # The kernel refuses while a process writes: then the disk stays writable.
        with contextlib.suppress(CannotMount):
            strikes[name]()
        self._is_repaired_at = time.monotonic() + self._chance.random.uniform(*DISK_FAULT_SECONDS)

    def tend(self) -> None:
        if self._is_repaired_at is not None and time.monotonic() >= self._is_repaired_at:
            self.mend()

    def mend(self) -> None:
        self._is_repaired_at = None
        self._disk.repair()
