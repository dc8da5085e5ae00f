"""Run chaos for a while and say what came of it; the status is 1 if any promise was broken."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from uuid import UUID

from tests.chaos.clients import ChaosClient
from tests.chaos.monkey import BACKGROUND_POINTS, FILES_POINTS, WEB_POINTS, Monkey
from tests.chaos.oracle import VIOLATIONS_SHOWN, Oracle
from tests.chaos.sabotage import MODES, sabotaged
from tests.support.agents import Client, exchange_token
from tests.support.inventory import find_faults, query, settle
from tests.support.stack import Servers, Stack, TookTooLong, free_port

FRONTS = 2
FINISH_SECONDS = 120.0
SETTLE_SECONDS = 60.0
SHOWN_CHARACTERS = 2000
SETTINGS = {
    "ACCESS_TOKEN_SECONDS": "86400",  # clients of a long run do not refresh
    "LOG_LEVEL": "WARNING",
    "WEB_DRAIN_SECONDS": "5",
    "UPLOAD_GRACE_SECONDS": "30",
}


def main() -> int:
    """Read the arguments, run, report."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0, help="how long to kill")
    parser.add_argument("--seed", type=int, default=None, help="choose the same actions again")
    parser.add_argument("--clients", type=int, default=6, help="threads that write and read")
    parser.add_argument("--sabotage", choices=sorted(MODES), help="run the service with one rule broken")
    options = parser.parse_args()
    seed = random.randrange(1 << 32) if options.seed is None else options.seed
    print(f"chaos: {options.seconds:.0f} s, {options.clients} clients, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="quartermaster-chaos-") as directory:
        servers = Servers(Path(directory) / "servers")
        servers.start()
        try:
            run = Run(Path(directory) / "stack", servers, seed, options.sabotage)
            run.play(options.seconds, options.clients)
            return run.report()
        finally:
            servers.stop()


class Run:
    """One run: a stack, its clients, its monkey and what they saw."""

    def __init__(self, directory: Path, servers: Servers, seed: int, sabotage: str | None) -> None:
        break_rule = partial(sabotaged, mode=sabotage) if sabotage else None
        self._stack = Stack(directory, servers, settings=SETTINGS, change_command=break_rule)
        self._credentials = self._stack.set_up()
        self._seed = seed
        self._monkey = Monkey(self._stack, servers, seed)
        self._oracle = Oracle()
        self._began = time.monotonic()

    def play(self, seconds: float, clients: int) -> None:
        """Let everything loose, then finish, settle and compare."""
        fronts = self._start()
        try:
            people = self._make_clients(clients, fronts)
            over = threading.Event()
            threads = [
                threading.Thread(target=person.run_until, args=(over,), daemon=True) for person in people
            ]
            for thread in threads:
                thread.start()
            self._monkey.play(seconds)
            over.set()
            self._monkey.rest()
            self._finish(threads, "finishing its last operation")
            self._compare(people)
        finally:
            self._stack.kill_all()

    def report(self) -> int:
        """Print the counts; give the status to exit with."""
        oracle = self._oracle
        print(f"acknowledged: {_counts(oracle.acknowledged)}")
        print(f"checked reads: {_counts(oracle.reads)}; retries: {_counts(oracle.retries)}")
        print(f"faults injected: {_counts(self._monkey.kills)}")
        print(f"violations: {len(oracle.violations)} in {time.monotonic() - self._began:.0f} s")
        for violation in oracle.violations[:VIOLATIONS_SHOWN]:
            print(f"  {violation}")
        if oracle.violations:
            self._show_failures()
        return 1 if oracle.violations else 0

    def _show_failures(self) -> None:
        """Print what the processes themselves logged as failures; their logs go with the run."""
        for log in sorted(self._stack.directory.glob("*.log")):
            failures = [
                line for line in log.read_text(errors="replace").splitlines() if '"level": "error"' in line
            ]
            for line in failures[:VIOLATIONS_SHOWN]:
                print(f"  {log.name}: {_ends_of(line)}")

    def _start(self) -> list[str]:
        ports = [self._stack.web_port, *(free_port() for _ in range(FRONTS - 1))]
        for port in ports:
            self._monkey.keep("web", partial(self._stack.web, port=port), WEB_POINTS)
        self._monkey.keep("files worker", partial(self._stack.worker, "files"), FILES_POINTS)
        for _ in range(2):
            make_worker = partial(self._stack.worker, "background")
            self._monkey.keep("background worker", make_worker, BACKGROUND_POINTS)
        self._monkey.keep("beat", self._stack.beat)
        for kept in self._monkey.kept[:FRONTS]:
            kept.service.wait_until_answering()
        return [f"http://127.0.0.1:{port}" for port in ports]

    def _make_clients(self, count: int, fronts: list[str]) -> list[ChaosClient]:
        agent = Client(fronts[0], exchange_token(fronts[0], self._credentials))
        owner = Client(fronts[0], self._credentials["ownerApiKey"])
        return [
            ChaosClient(number, self._seed, agent, owner, fronts, self._oracle) for number in range(count)
        ]

    def _finish(self, threads: list[threading.Thread], what: str) -> None:
        give_up_at = time.monotonic() + FINISH_SECONDS
        for thread in threads:
            thread.join(max(0.0, give_up_at - time.monotonic()))
            if thread.is_alive():
                self._oracle.violate(f"a client is still {what}")

    def _compare(self, people: list[ChaosClient]) -> None:
        try:
            settle(self._stack, seconds=SETTLE_SECONDS, meanwhile=self._monkey.tend)
        except TookTooLong as error:
            self._oracle.violate(str(error))
        for fault in find_faults(self._stack):
            self._oracle.violate(fault)
        recorded = query(self._stack, "SELECT operation_id, version_id FROM file_operations")
        self._oracle.compare_operations({UUID(operation): version for operation, version in recorded})
        threads = [threading.Thread(target=person.verify, daemon=True) for person in people]
        for thread in threads:
            thread.start()
        self._finish(threads, "verifying")


def _counts(counter: Counter[str]) -> str:
    total = sum(counter.values())
    return f"{total} ({', '.join(f'{count} {name}' for name, count in counter.most_common())})"


def _ends_of(line: str) -> str:
    """Shorten a line in its middle: it begins with what failed, and a traceback ends with why."""
    return (
        line
        if len(line) <= 2 * SHOWN_CHARACTERS
        else f"{line[:SHOWN_CHARACTERS]} … {line[-SHOWN_CHARACTERS:]}"
    )


if __name__ == "__main__":
    sys.exit(main())
