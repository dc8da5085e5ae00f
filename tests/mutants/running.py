"""Run the tests that must detect a mutant in a copy of the tree, and return whether they did.

A lane is one copy with one mutant at a time. Its tests run in a process group of their own, which is killed at its
time limit.
"""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from queue import SimpleQueue

from tests.mutants.catalogue import Mutant

ROOT = Path(__file__).parents[2]
COPIED = ("shared", "web", "workers", "deploy", "tests", "sdk", "pyproject.toml")
LIMIT_SECONDS = 180
"""The time limit of one mutant's tests. A test that hangs has detected the mutant."""
FAILED = 1
"""Pytest's exit code if tests ran and failed."""


class Verdict(StrEnum):
    """The result of a mutant."""

    NOTICED = "noticed"
    TIMED_OUT = "noticed (timed out)"
    SURVIVED = "SURVIVED"
    BROKEN = "BROKEN"
    """No test ran: the change is not valid code, or a test does not exist."""


NOTICED = frozenset({Verdict.NOTICED, Verdict.TIMED_OUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A mutant, its verdict, and the output of its tests."""

    mutant: Mutant
    verdict: Verdict
    said: str


def run_all(
    mutants: Sequence[Mutant], lanes: Sequence[Path], goes_on: Callable[[], bool]
) -> Iterator[Judged]:
    """Test mutants in parallel, one in each lane, in order, until `goes_on` returns False."""
    free: SimpleQueue[Path] = SimpleQueue()
    for lane in lanes:
        free.put(lane)

    def judge_in_turn(mutant: Mutant) -> Judged | None:
        if not goes_on():
            return None
        lane = free.get()
        try:
            return judge(mutant, lane)
        finally:
            free.put(lane)

    with ThreadPoolExecutor(len(lanes)) as threads:
        yield from filter(None, threads.map(judge_in_turn, mutants))


def judge(mutant: Mutant, lane: Path) -> Judged:
    """Apply a mutant to a lane, run its tests, and restore the file."""
    was = mutant.apply(lane)
    try:
        verdict, said = run_tests(mutant.tests, lane)
    finally:
        (lane / mutant.file).write_text(was)
    return Judged(mutant=mutant, verdict=verdict, said=said)


def run_tests(
    tests: Sequence[str], lane: Path, *, limit_seconds: float = LIMIT_SECONDS
) -> tuple[Verdict, str]:
    """Run tests until the first fails. Return the verdict and their output."""
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", "-n0", "--no-header", *tests]
    run = subprocess.Popen(
        command,
        cwd=lane,
        env=os.environ
        | {"PYTHONPATH": str(lane / "sdk" / "src")},  # Without this, the installed SDK would be tested.
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = run.communicate(timeout=limit_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(run.pid, signal.SIGKILL)
        said, _ = run.communicate()
        return Verdict.TIMED_OUT, said
    if run.returncode == 0:
        return Verdict.SURVIVED, said
    return (Verdict.NOTICED if run.returncode == FAILED else Verdict.BROKEN), said


@contextmanager
def copies(count: int, where: Path) -> Iterator[list[Path]]:
    """Yield this many copies of the tree, and remove them afterwards."""
    ignored = shutil.ignore_patterns("__pycache__", "node_modules", "*.pyc")
    lanes = [where / f"lane-{number}" for number in range(count)]
    for lane in lanes:
        lane.mkdir(parents=True)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, lane / name, ignore=ignored)
            else:
                shutil.copy2(source, lane / name)
    try:
        yield lanes
    finally:
        for lane in lanes:
            shutil.rmtree(lane, ignore_errors=True)
