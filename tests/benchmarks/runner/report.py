"""Print figures beside their yardsticks. Verdicts are for information: a noisy machine fails no build."""
# The multiplication sign is intended.
# ruff: noqa: RUF001

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from tests.benchmarks.runner.measurements import Sample

HEADINGS = ("row", "what", "figure", "yardstick", "ratio", "target", "", "CPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """CPU for one piece of work, by kind of process (web, workers, postgres, valkey)."""

    unit: str
    milliseconds: Mapping[str, float]

    def __str__(self) -> str:
        parts = ", ".join(f"{part} {taken:.2f}" for part, taken in sorted(self.milliseconds.items()))
        return f"{sum(self.milliseconds.values()):.2f} ms/{self.unit} ({parts})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One printed line. `met` is None without a target, or without a yardstick to compare with.

    `bound` is the ratio that `target` requires.
    """

    what: str
    figure: str
    yardstick: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    cpu: Cpu | str = ""
    bound: float | None = None

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} ×"
        verdict = {True: "PASS", False: "FAIL", None: ""}[self.met]
        return self.what, self.figure, self.yardstick, ratio, self.target, verdict, str(self.cpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A row's results and duration. `failure` is empty unless the row broke or was interrupted."""

    row: str
    seconds: float
    lines: Sequence[Line] = field(default_factory=tuple)
    failure: str = ""

    @property
    def shown(self) -> Sequence[Line]:
        """Return its lines, and one that states the failure."""
        failed = [Line(what=f"broke: {self.failure}", figure="")] if self.failure else []
        return [*self.lines, *failed]


def at_least(
    what: str, figure: str, yardstick: str, *, ratio: float, minimum: float, cpu: Cpu | str = ""
) -> Line:
    """A rate that should reach a share of its yardstick."""
    line = Line(what=what, figure=figure, yardstick=yardstick, ratio=ratio, cpu=cpu)
    return replace(line, target=f"≥ {minimum:g} ×", met=ratio >= minimum, bound=minimum)


def flat(
    what: str, figure: str, yardstick: str, *, ratio: float, maximum: float = 1.2, cpu: Cpu | str = ""
) -> Line:
    """A cost that should not grow."""
    line = Line(what=what, figure=figure, yardstick=yardstick, ratio=ratio, cpu=cpu)
    return replace(line, target=f"≤ {maximum:g} ×", met=ratio <= maximum, bound=maximum)


def missing(what: str, yardstick: str, figure: str = "") -> Line:
    """A comparison that could not be measured here."""
    return Line(what=what, figure=figure, yardstick=f"yardstick missing: {yardstick}")


def cpu_per(sample: Sample, count: float, unit: str) -> Cpu:
    """Divide a sample's CPU by the pieces of work it was for."""
    return Cpu(
        unit=unit,
        milliseconds={part: seconds * 1000 / count for part, seconds in sample.cpu_by_part.items()},
    )


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def table(measured: Sequence[Measured]) -> str:
    """Return all lines as one table."""
    rows = [HEADINGS, *((each.row, *line.cells()) for each in measured for line in each.shown)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join("  ".join(row).rstrip() for row in padded)


def document(measured: Sequence[Measured], *, is_quick: bool) -> str:
    """Return everything as JSON, with a description of the machine."""
    machine = {"cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}
    rows = [asdict(each) for each in measured]
    return json.dumps({"quick": is_quick, "machine": machine, "rows": rows}, ensure_ascii=False, indent=1)
