"""One run: a stack, the work that goes on in it, a monkey, and the comparison of everything at the end."""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.chaos import faults
from tests.chaos.installation import set_up
from tests.chaos.ledger import find_ledger_faults
from tests.chaos.monkey import Monkey
from tests.chaos.oracle import VIOLATIONS_SHOWN, Oracle
from tests.chaos.sabotage import sabotaged
from tests.chaos.settling import CREDITS, FILES, Settling
from tests.chaos.workload import Person, Workload
from tests.support.inventory import find_faults
from tests.support.model_service import use_impatient_front
from tests.support.small_disks import CannotMount, SmallDisk, mounted_disk
from tests.support.stack import Servers, Stack, TookTooLong, free_port

FRONTS = 2
FINISH_SECONDS = 120.0
SETTLE_SECONDS = 60.0
SHOWN_CHARACTERS = 2000
DISK_BYTES = 1 << 30
SETTINGS = {
    "BLOB_STORE_RESERVE_BYTES": str(DISK_BYTES >> 4),
    "ACCESS_TOKEN_SECONDS": "86400",  # clients of a long run do not refresh
    "LOG_LEVEL": "WARNING",
    "WEB_DRAIN_SECONDS": "5",
    "WEB_THREADS": "128",
    "MODELS_THREADS": "32",
    "UPLOAD_GRACE_SECONDS": "30",
}


class Run:
    """One run, whose processes end with its block."""

    def __init__(
        self,
        directory: Path,
        servers: Servers,
        workloads: Sequence[type[Workload]],
        *,
        seed: int,
        sabotage: Sequence[str],
        is_calm: bool,
    ) -> None:
        self._began = time.monotonic()
        self._phases: list[str] = []
        self._closing = ExitStack()
        self._oracle = Oracle()
        disk = self._mount_disk(directory)
        self._stack = Stack(
            directory,
            servers,
            settings=SETTINGS,
            change_command=partial(_change_command, sabotage=sabotage),
            blob_store=None if disk is None else (disk.path / "blobs").as_uri(),
        )
        if disk is not None:
            self._stack.blobs = disk.path / "blobs"
        self._is_calm = is_calm
        self._ports = [self._stack.web_port, *(free_port() for _ in range(self._wanted(FRONTS) - 1))]
        self._installation = set_up(self._stack, self._ports, self._oracle, seed)
        self._workloads = [make(self._installation, self._closing) for make in workloads]
        self._settling = Settling(
            self._stack,
            list(dict.fromkeys([FILES, CREDITS, *(each for work in workloads for each in work.waiting)])),
        )
        self._monkey = Monkey(self._settling, servers, seed, disk=disk, is_calm=is_calm)

    def __enter__(self) -> Self:
        """Nothing runs yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End every process."""
        self._stack.kill_all()
        self._installation.database.dispose()
        self._closing.close()

    def play(self, seconds: float, until: Mapping[str, int]) -> None:
        """Let everything loose for so long, or until so much of each kind is done; finish, settle and compare."""
        self._start()
        self._note("started")
        people = [person for work in self._workloads for person in work.begin()]
        over = threading.Event()
        threads = [threading.Thread(target=at.run_until, args=(over,), daemon=True) for at in people]
        for thread in threads:
            thread.start()
        self._monkey.play(seconds, lambda: bool(until) and self._oracle.has_counted(until))
        over.set()
        self._monkey.rest()
        self._note("all alive again")
        self._finish(threads, "finishing its last operation")
        self._note("clients done")
        self._compare(people)

    def report(self) -> int:
        """Print the counts; give the status to exit with."""
        oracle = self._oracle
        print(f"acknowledged: {_counts(oracle.acknowledged)}")
        print(f"calls: {_counts(oracle.calls)}")
        print(f"checked reads: {_counts(oracle.reads)}; retries: {_counts(oracle.retries)}")
        print(f"faults injected: {_counts(self._monkey.kills)}")
        print(f"seconds: {', '.join(self._phases)}")
        print(f"violations: {len(oracle.violations)} in {time.monotonic() - self._began:.0f} s")
        for violation in _some_of_each(oracle.violations):
            print(f"  {violation[:SHOWN_CHARACTERS]}")
        if oracle.violations:
            self._show_failures()
        return 1 if oracle.violations else 0

    def _mount_disk(self, directory: Path) -> SmallDisk | None:
        """Give the blob store a disk of its own, to be filled, made read-only and lost, where one can be mounted."""
        try:
            return self._closing.enter_context(mounted_disk(directory / "small", size_bytes=DISK_BYTES))
        except CannotMount as error:
            print(f"no disk befalls anything: {error}")
            return None

    def _wanted(self, count: int) -> int:
        """So many processes of a kind, or one where none is killed."""
        return min(count, 1) if self._is_calm else count

    def _note(self, phase: str) -> None:
        self._phases.append(f"{time.monotonic() - self._began:.0f} {phase}")

    def _show_failures(self) -> None:
        """Print what the processes themselves logged as failures; their logs go with the run."""
        for log in sorted(self._stack.directory.glob("*.log")):
            failures = [
                line for line in log.read_text(errors="replace").splitlines() if '"level": "error"' in line
            ]
            for line in failures[:VIOLATIONS_SHOWN]:
                print(f"  {log.name}: {_ends_of(line)}")

    def _start(self) -> None:
        stack, monkey = self._stack, self._monkey
        for port in self._ports:
            monkey.keep("web", partial(stack.web, port=port), faults.WEB)
        for name, points in faults.WORKERS.items():
            for _ in range(self._wanted(max(work.workers.get(name, 0) for work in self._workloads))):
                monkey.keep(f"{name} worker", partial(stack.worker, name, LOG_LEVEL="INFO"), points)
        monkey.keep("beat", stack.beat)
        for kept in monkey.kept[: len(self._ports)]:
            kept.service.wait_until_answering()

    def _finish(self, threads: Sequence[threading.Thread], what: str) -> None:
        give_up_at = time.monotonic() + FINISH_SECONDS
        for thread in threads:
            thread.join(max(0.0, give_up_at - time.monotonic()))
            if thread.is_alive():
                self._oracle.violate(f"a client is still {what}")

    def _compare(self, people: Sequence[Person]) -> None:
        try:
            self._settling.settle(seconds=SETTLE_SECONDS, meanwhile=self._monkey.tend)
        except TookTooLong as error:
            self._oracle.violate(str(error))
        self._note("settled")
        threads = [threading.Thread(target=person.verify, daemon=True) for person in people]
        for thread in threads:
            thread.start()
        self._finish(threads, "verifying")
        self._note("verified")
        faults = [fault for work in self._workloads for fault in work.compare()]
        for fault in (*find_faults(self._stack), *faults, *find_ledger_faults(self._installation)):
            self._oracle.violate(fault)


def _change_command(command: Sequence[str], sabotage: Sequence[str]) -> Sequence[str]:
    command = use_impatient_front(command)
    return sabotaged(command, sabotage) if sabotage else command


def _counts(counter: Counter[str]) -> str:
    total = sum(counter.values())
    return f"{total} ({', '.join(f'{count} {name}' for name, count in counter.most_common())})"


def _some_of_each(violations: Sequence[str]) -> Iterator[str]:
    """Choose a few of each kind, which begin with the same words."""
    shown = Counter[str]()
    for violation in violations:
        kind = " ".join(re.findall("[a-z]{3,}", violation)[:2])
        shown[kind] += 1
        if shown[kind] <= VIOLATIONS_SHOWN:
            yield violation


def _ends_of(line: str) -> str:
    """Shorten a line in its middle: it begins with what failed, and a traceback ends with why."""
    if len(line) <= 2 * SHOWN_CHARACTERS:
        return line
    return f"{line[:SHOWN_CHARACTERS]} … {line[-SHOWN_CHARACTERS:]}"
