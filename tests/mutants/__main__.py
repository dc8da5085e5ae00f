"""Apply small wrong changes to the product and check that its tests fail: `python -m tests.mutants [WORD …]`.

Words select mutants by the beginning of a name or a file. With `--seconds`, no mutant begins after that time, and the
order differs from commit to commit. The exit code is 1 if a mutant survives or a row of the catalogue is broken.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.catalogue import Mutant, read_catalogue
from tests.mutants.running import NOTICED, ROOT, Judged, Verdict, copies, run_all, run_tests


def main() -> int:
    """Test the selected mutants, and report the results."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("only", nargs="*", metavar="WORD", help="beginnings of names or files")
    parser.add_argument("--lanes", type=int, default=2, help="mutants at a time")
    parser.add_argument("--seconds", type=float, help="begin no mutant after this time")
    arguments = parser.parse_args()
    mutants = read_catalogue(tuple(arguments.only))
    ends_at = time.monotonic() + (arguments.seconds or float("inf"))
    if arguments.seconds:
        random.Random(_commit()).shuffle(mutants)
    with (
        tempfile.TemporaryDirectory(prefix="mutants-") as folder,
        copies(arguments.lanes, Path(folder)) as lanes,
    ):
        judged = []
        for one in run_all(mutants, lanes, lambda: time.monotonic() < ends_at):
            print(f"{one.verdict:20} {one.mutant.name}", flush=True)
            judged.append(one)
        honest = _are_green([one.mutant for one in judged], lanes[0])
    _report(judged, len(mutants))
    return 0 if honest and all(one.verdict in NOTICED for one in judged) else 1


def _are_green(mutants: Sequence[Mutant], lane: Path) -> bool:
    """Return whether the same tests pass without a mutant. A test that always fails detects nothing."""
    tests = sorted({test for mutant in mutants for test in mutant.tests})
    if not tests:
        return True
    verdict, said = run_tests(tests, lane, limit_seconds=1800)
    if verdict is not Verdict.SURVIVED:
        print(f"The tests fail without a mutant:\n{said[-3000:]}")
    return verdict is Verdict.SURVIVED


def _report(judged: Sequence[Judged], known: int) -> None:
    for one in judged:
        if one.verdict not in NOTICED:
            print(f"\n{one.verdict}: {one.mutant.name} in {one.mutant.file}\n{one.said[-1500:]}")
    counts = Counter(one.verdict for one in judged)
    print(
        ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())),
        f"of {known} in the catalogue",
    )


def _commit() -> str:
    asked = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
