"""The monkey, which injects all kinds of faults, and a supervisor that restarts every process that has ended.

Only the thread that calls `Monkey.play` starts processes, because their lives are bound to that thread.
"""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence

from tests.chaos.background_work import BackgroundWork
from tests.chaos.strikes.base import Chance, Strikes
from tests.chaos.supervised_process import MakeService, SupervisedProcess
from tests.support.processes.stack import Servers

SWEEPS_PAUSE_SECONDS = (1.0, 1.0)
LOOK_SECONDS = 0.2


class Clock:
    """Runs an action repeatedly, with a random pause after each run."""

    def __init__(
        self, act: Callable[[], None], pause_seconds: tuple[float, float], chance: random.Random
    ) -> None:
        self._act = act
        self._pause_seconds = pause_seconds
        self._random = chance
        self._wait()

    def tick(self) -> None:
        """Run the action if it is due."""
        if time.monotonic() >= self._due_at:
            self._act()
            self._wait()

    def _wait(self) -> None:
        self._due_at = time.monotonic() + self._random.uniform(*self._pause_seconds)


class Monkey:
    """Keeps a stack's processes running, and strikes at them and at the servers they use."""

    def __init__(
        self,
        background_work: BackgroundWork,
        servers: Servers,
        chance: Chance,
        supervised: list[SupervisedProcess],
        strikes: Sequence[Strikes],
    ) -> None:
        """Keep processes in `supervised`, and strike by each of `strikes`; if there are none, only keep."""
        self._background_work = background_work
        self._servers = servers
        self._chance = chance
        self.supervised = supervised
        self._strikes = strikes
        self._is_resting = not strikes
        self._looked_at = 0.0

    @property
    def done(self) -> Counter[str]:
        """Return the count of injected faults, by kind."""
        return self._chance.done

    def keep(self, kind: str, make: MakeService, points: Sequence[str] = ()) -> None:
        """Start a process and restart it whenever it ends; `make` takes its settings."""
        supervised = SupervisedProcess(kind=kind, make=make, points=points, service=make(**self._arm(points)))
        supervised.service.start()
        self.supervised.append(supervised)

    def play(self, seconds: float, has_seen_enough: Callable[[], bool] = lambda: False) -> None:
        """Strike and keep for a number of seconds, or until enough has happened."""
        over = time.monotonic() + seconds
        clocks = [Clock(self._request_sweeps, SWEEPS_PAUSE_SECONDS, self._chance.random)]
        clocks += [Clock(each.strike, each.pause_seconds, self._chance.random) for each in self._strikes]
        while time.monotonic() < over and not has_seen_enough():
            self.tend()
            for clock in clocks:
                clock.tick()
            time.sleep(0.02)

    def rest(self) -> None:
        """End all faults, and restart everything unarmed."""
        if not self._strikes:
            return
        self._is_resting = True
        for each in self._strikes:
            each.mend()
        for supervised in self.supervised:
            supervised.service.kill()
            supervised.renew(supervised.make())
        for supervised in self.supervised:
            if supervised.service.port is not None:
                supervised.service.wait_until_answering()

    def tend(self) -> None:
        """End faults whose time is over, and restart what has ended."""
        for each in self._strikes:
            each.tend()
        for supervised in self.supervised:
            if not supervised.service.is_running:
                self._start_again(supervised)
        now = time.monotonic()
        if now - self._looked_at > LOOK_SECONDS:
            self._looked_at = now
            for supervised in self.supervised:
                supervised.look()

    def _request_sweeps(self) -> None:
        if self._servers.valkey.is_ready():
            self._background_work.request_sweeps()

    def _start_again(self, supervised: SupervisedProcess) -> None:
        if supervised.service.returncode == -signal.SIGKILL and "FAULTS" in supervised.service.settings:
            self._chance.done[f"{supervised.kind} armed"] += 1
        supervised.renew(supervised.make(**self._arm(supervised.points)))

    def _arm(self, points: Sequence[str]) -> dict[str, str]:
        """Return the settings of a new process. A process that starts while the monkey rests is not armed."""
        if self._is_resting:
            return {}
        return {name: value for each in self._strikes for name, value in each.arm(points).items()}
