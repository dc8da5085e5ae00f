"""Run rows in sequence. If a row breaks or the run is interrupted, all measured lines are kept."""

import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

from tests.benchmarks.runner.report import Line, Measured

INTERRUPTED = "interrupted"
LONGEST_FAILURE = 120
Part = TypeVar("Part")


def run_rows(rows: Mapping[str, Callable[[Part], Iterator[Line]]], bench: Part) -> list[Measured]:
    """Measure rows in order. A row that breaks is reported with its lines so far; an interruption ends the run."""
    measured: list[Measured] = []
    for name, row in rows.items():
        measured.append(_run(name, row, bench))
        if measured[-1].failure == INTERRUPTED:
            left = [each for each in rows if each not in {done.row for done in measured}]
            print(f"interrupted; not measured: {', '.join(left) or 'none'}", file=sys.stderr, flush=True)
            break
    return measured


def _run(name: str, row: Callable[[Part], Iterator[Line]], bench: Part) -> Measured:
    lines: list[Line] = []
    failure = ""
    started_at = time.monotonic()
    try:
        print(f"measuring {name}", file=sys.stderr, flush=True)
        lines.extend(row(bench))
    except KeyboardInterrupt:
        failure = INTERRUPTED
    except Exception as error:  # noqa: BLE001 (whatever breaks a row, the others are measured)
        traceback.print_exc()
        first_line = str(error).partition("\n")[0]
        failure = f"{type(error).__name__}: {first_line}"[:LONGEST_FAILURE].rstrip()
    return Measured(row=name, seconds=time.monotonic() - started_at, lines=lines, failure=failure)
