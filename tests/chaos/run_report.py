"""The printed report of a run: counts of acknowledged operations, counts of faults, and every broken promise."""

import re
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tests.chaos.observations import VIOLATIONS_SHOWN, Observations
from tests.support.processes.stack import Stack

SHOWN_CHARACTERS = 2000


class RunReport:
    """The report of one run; its clock starts when it is created."""

    def __init__(self, observations: Observations) -> None:
        self._observations = observations
        self._began = time.monotonic()
        self._phases: list[str] = []

    def note(self, phase: str) -> None:
        """Record that a phase has ended."""
        self._phases.append(f"{time.monotonic() - self._began:.0f} {phase}")

    def report(self, stack: Stack, befallen: Mapping[str, Counter[str]]) -> int:
        """Print the counts, and return the exit status."""
        observations = self._observations
        print(f"acknowledged: {_counts(observations.acknowledged)}")
        print(f"calls: {_counts(observations.calls)}")
        print(f"checked reads: {_counts(observations.reads)}; retries: {_counts(observations.retries)}")
        for what, counter in befallen.items():
            print(f"{what}: {_counts(counter)}")
        print(f"seconds: {', '.join(self._phases)}")
        print(f"violations: {len(observations.violations)} in {time.monotonic() - self._began:.0f} s")
        for violation in _some_of_each(observations.violations):
            print(f"  {violation[:SHOWN_CHARACTERS]}")
        if observations.violations:
            _show_failures(stack)
        return 1 if observations.violations else 0


def _show_failures(stack: Stack) -> None:
    """Print the failures that processes logged, because the logs are deleted with the run."""
    for log in sorted(stack.directory.glob("*.log")):
        lines = log.read_text(errors="replace").splitlines()
        failures = [line for line in lines if '"level": "error"' in line]
        for line in failures[:VIOLATIONS_SHOWN]:
            print(f"  {log.name}: {_ends_of(line)}")


def _counts(counter: Counter[str]) -> str:
    total = sum(counter.values())
    return f"{total} ({', '.join(f'{count} {name}' for name, count in counter.most_common())})"


def _some_of_each(violations: Sequence[str]) -> Iterator[str]:
    """Yield a few violations of each kind; those of one kind begin with the same words."""
    shown = Counter[str]()
    for violation in violations:
        kind = " ".join(re.findall("[a-z]{3,}", violation)[:2])
        shown[kind] += 1
        if shown[kind] <= VIOLATIONS_SHOWN:
            yield violation


def _ends_of(line: str) -> str:
    """Shorten a line in its middle: its start names the failure, and the end of a traceback names the cause."""
    if len(line) <= 2 * SHOWN_CHARACTERS:
        return line
    return f"{line[:SHOWN_CHARACTERS]} … {line[-SHOWN_CHARACTERS:]}"
