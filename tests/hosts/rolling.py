"""Replace every process by the next version under load: first its migration, then one process after the other."""

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from deploy.process_types import PROCESS_TYPES
from tests.chaos.observations import Observations
from tests.chaos.supervised_process import SupervisedProcess
from tests.hosts.installation import FRONT_PORT, Hosts
from tests.support.processes.stack import ROOT, Service, TookTooLong, wait_until

REPLACED = ("work-1", "work-2", "front-1", "front-2")
"""Hosts whose processes are replaced, in this order."""
WORTH_REPEATING = {"429"}
"""Answers that are no failure: somebody asked for more than their share."""


class NextVersion:
    """A wheel of the current checkout, installed outside of it."""

    def __init__(self, directory: Path) -> None:
        """Build the wheel and install it."""
        self.directory = directory / "next"
        built = directory / "dist"
        shutil.rmtree(ROOT / "build", ignore_errors=True)
        _pip("wheel", "--no-build-isolation", "--wheel-dir", str(built), str(ROOT))
        shutil.rmtree(ROOT / "build", ignore_errors=True)
        (wheel,) = built.glob("quartermaster-*.whl")
        _pip("install", "--target", str(self.directory), str(wheel))
        self.settings = {"PYTHONPATH": str(self.directory)}

    def command(self, name: str) -> list[str]:
        """Return the command of a process of the Procfile."""
        return [str(self.directory / "bin" / "quartermaster"), *PROCESS_TYPES[name].command.split()]

    def make(self, hosts: Hosts, name: str) -> Service:
        """Return the service that runs a process type."""
        port = FRONT_PORT if name == "web" else None
        service = hosts.stack._service(f"next-{name}", self.command(name), self.settings, port=port)
        # Python looks for modules in the working directory first, so it must not be the checkout.
        service._program = replace(service._program, directory=self.directory)
        return service

    def migrate(self, hosts: Hosts) -> None:
        """Run the migration, as the role that owns the schema."""
        name = hosts.stack.administrator_url.partition("@/")[2].partition("?")[0]
        owner = {"MIGRATIONS_DATABASE_URL": hosts.servers.postgres.migrations_url(name)}
        environment = hosts.stack.environment | self.settings | owner
        subprocess.run(self.command("release"), env=environment, cwd=self.directory, check=True)


class RollingRelease:
    """Replaces every process of an installation by the next version."""

    what = "replaced"

    def __init__(
        self,
        hosts: Hosts,
        version: NextVersion,
        observations: Observations,
        replaced: Sequence[str] = REPLACED,
    ) -> None:
        self._hosts = hosts
        self._version = version
        self._observations = observations
        self._replaced = replaced
        self.done: Counter[str] = Counter()

    def play(self) -> None:
        """Migrate, then replace one process after the other: workers and beats first, as the runbook demands."""
        self._version.migrate(self._hosts)
        self.done["migration"] += 1
        for host, supervised in self._in_order():
            self._replace(host, supervised)

    def tend(self) -> None:
        """Do nothing: no process is killed."""

    def judge(self) -> None:
        """Record a violation if a client had to repeat a request: in a rolling release none may fail."""
        for reason, count in self._observations.retries.items():
            if reason not in WORTH_REPEATING:
                self._observations.violate(f"failed requests: {count} with {reason}")

    def _in_order(self) -> Iterator[tuple[str, SupervisedProcess]]:
        for host in sorted(self._replaced, key=REPLACED.index):
            yield from ((host, supervised) for supervised in self._hosts.supervised[host])

    def _replace(self, host: str, supervised: SupervisedProcess) -> None:
        if not supervised.service.terminate():
            self._observations.violate(f"{supervised.kind} of {host} did not stop in its time")
        kind = supervised.kind.removesuffix(" worker")
        name = kind if kind in PROCESS_TYPES else f"worker-{kind}"
        at = self._hosts.by_name[host]
        supervised.make = lambda: self._version.make(self._hosts, name).place(at.address, at.prefix)
        supervised.renew(supervised.make())
        try:
            wait_until(partial(_is_ready, supervised), f"{supervised.kind} of {host} is ready")
        except TookTooLong as error:
            self._observations.violate(str(error))
        self.done[supervised.kind] += 1


def _pip(verb: str, *arguments: str) -> None:
    """Run pip without network access."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        "--quiet",
        verb,
        "--no-deps",
        "--no-index",
    ]
    subprocess.run([*pip, *arguments], check=True)


def _is_ready(supervised: SupervisedProcess) -> bool:
    supervised.look()
    return supervised.ready_at is not None
