"""What came of a run, in print: what was acknowledged, what befell the installation, and every broken promise."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.oracle import VIOLATIONS_SHOWN, Oracle
from tests.support.processes.stack import Stack

SHOWN_CHARACTERS = 2000


class Account:
    """The account of one run, which begins when it is made."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle = oracle
        self._began = time.monotonic()
        self._phases: list[str] = []

    def note(self, phase: str) -> None:
        """Note that a phase has ended."""
        self._phases.append(f"{time.monotonic() - self._began:.0f} {phase}")

    def report(self, stack: Stack, befallen: Mapping[str, Counter[str]]) -> int:
        """Print the counts; give the status to exit with."""
        oracle = self._oracle
        print(f"acknowledged: {_counts(oracle.acknowledged)}")
        print(f"calls: {_counts(oracle.calls)}")
        print(f"checked reads: {_counts(oracle.reads)}; retries: {_counts(oracle.retries)}")
        for what, counter in befallen.items():
            print(f"{what}: {_counts(counter)}")
        print(f"seconds: {', '.join(self._phases)}")
        print(f"violations: {len(oracle.violations)} in {time.monotonic() - self._began:.0f} s")
        for violation in _some_of_each(oracle.violations):
            print(f"  {violation[:SHOWN_CHARACTERS]}")
        if oracle.violations:
            _show_failures(stack)
        return 1 if oracle.violations else 0


def _show_failures(stack: Stack) -> None:
    """Print what the processes themselves logged as failures; their logs go with the run."""
    for log in sorted(stack.directory.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        failures = [line for line in lines if '"level": "error"' in line]
        for line in failures[:VIOLATIONS_SHOWN]:
            print(f"  {log.name}: {_ends_of(line)}")


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
