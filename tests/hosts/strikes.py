"""Strikes at hosts: links are cut and hosts are killed, and a supervisor restarts their processes."""

import random
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from tests.hosts.installation import Hosts
from tests.hosts.network import Host

PAUSE_SECONDS = (1.0, 3.0)
"""Between two strikes."""
CUT_SECONDS = (1.0, 8.0)
DEAD_SECONDS = (0.5, 3.0)
GRACE_SECONDS = 4.0
"""What a host is left alone for once it is back, or a busy machine would see nothing but starts."""
PAIRS = (
    ("edge", "front-1"),
    ("edge", "front-2"),
    ("front-1", "postgres"),
    ("front-2", "valkey"),
    ("front-1", "store"),
    ("work-1", "postgres"),
    ("work-2", "valkey-models"),
    ("work-2", "store"),
    ("front-1", "rabbitmq"),
    ("work-1", "rabbitmq"),
)
KEEPS_IN_MEMORY = "store"


class Strikes:
    """Strikes at the hosts of an installation, one after the other, and repairs them."""

    what = "struck"

    def __init__(self, hosts: Hosts, chance: random.Random, seconds: float) -> None:
        self._hosts = hosts
        self._seconds = seconds
        self._random = chance
        self.done: Counter[str] = Counter()
        self._struck: dict[str, tuple[float, Callable[[], None]]] = {}
        self._back_at: dict[str, float] = {}
        self._next_at = 0.0
        self._log = hosts.stack.directory / "strikes.log"

    def play(self) -> None:
        """Strike and repair for a number of seconds; then repair everything."""
        over = time.monotonic() + self._seconds
        while (now := time.monotonic()) < over:
            self.tend()
            if now >= self._next_at:
                self._random.choice((self._cut_host, self._cut_pair, self._kill_host))()
                self._next_at = now + self._random.uniform(*PAUSE_SECONDS)
            time.sleep(0.05)
        self._mend_all()

    def tend(self) -> None:
        """Repair the strikes whose time is over, and restart what has ended on live hosts."""
        now = time.monotonic()
        for name, (until, mend) in list(self._struck.items()):
            if now >= until:
                del self._struck[name]
                self._mend(name, mend)
        for name, processes in self._hosts.supervised.items():
            if name not in self._struck:
                for supervised in processes:
                    if not supervised.service.is_running:
                        supervised.renew(supervised.make())

    def judge(self) -> None:
        """Do nothing: requests may fail while servers are cut off; the comparison checks what was acknowledged."""

    def _mend_all(self) -> None:
        for name in list(self._struck):
            self._mend(name, self._struck.pop(name)[1])
        self.tend()
        for processes in self._hosts.supervised.values():
            for supervised in processes:
                if supervised.service.port is not None:
                    supervised.service.wait_until_answering()

    def _cut_host(self) -> None:
        if (host := self._choose()) is not None:
            host.cut()
            self._strike(f"link of {host.name} cut", (host.name,), CUT_SECONDS, host.mend)

    def _cut_pair(self) -> None:
        pairs = [pair for pair in PAIRS if self._hosts.by_name.keys() >= set(pair)]
        one, other = (self._hosts.by_name[name] for name in self._random.choice(pairs))
        if self._struck.keys().isdisjoint((one.name, other.name)):
            one.part_from(other)
            self._strike(
                f"{one.name} cut off from {other.name}", (one.name,), CUT_SECONDS, partial(one.rejoin, other)
            )

    def _kill_host(self) -> None:
        host = self._choose()
        if host is not None and host.name != KEEPS_IN_MEMORY:
            host.kill()
            self._strike(f"host {host.name} killed", (host.name,), DEAD_SECONDS, partial(self._revive, host))

    def _revive(self, host: Host) -> None:
        host.mend()
        self._hosts.start_servers_of(host.name)

    def _strike(
        self, what: str, names: tuple[str, ...], seconds: tuple[float, float], mend: Callable[[], None]
    ) -> None:
        self.done[what] += 1
        self._note(what)
        until = time.monotonic() + self._random.uniform(*seconds)
        for name in names:
            self._struck[name] = (until, mend)
            self._back_at[name] = until

    def _mend(self, name: str, mend: Callable[[], None]) -> None:
        mend()
        self._note(f"{name} is whole again")

    def _note(self, what: str) -> None:
        """Record the time of a strike, to be read beside the logs of the processes."""
        with self._log.open("a") as log:
            log.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {what}\n")

    def _choose(self) -> Host | None:
        """Return a host without a recent strike, or None."""
        now = time.monotonic()
        whole = [
            host
            for name, host in self._hosts.by_name.items()
            if name not in self._struck and now - self._back_at.get(name, 0.0) > GRACE_SECONDS
        ]
        return self._random.choice(whole) if whole else None
