"""Print figures beside their yardsticks. A verdict is information: a noisy machine fails nobody's build."""
# The multiplication sign is meant.
# ruff: noqa: RUF001

from collections.abc import Sequence
from dataclasses import dataclass

from tests.benchmarks.measuring import Sample

HEADINGS = ("what", "figure", "yardstick", "ratio", "target", "", "CPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One printed line; `met` is None where there is nothing to meet or nothing to compare with."""

    what: str
    figure: str
    yardstick: str = ""
    ratio: float | None = None
    target: str = ""
    met: bool | None = None
    cpu: str = ""

    def cells(self) -> tuple[str, ...]:
        ratio = "" if self.ratio is None else f"{self.ratio:.2f} ×"
        verdict = {True: "PASS", False: "FAIL", None: ""}[self.met]
        return self.what, self.figure, self.yardstick, ratio, self.target, verdict, self.cpu


def at_least(what: str, figure: str, yardstick: str, *, ratio: float, minimum: float, cpu: str = "") -> Line:
    """A rate that should reach a share of its yardstick."""
    return Line(
        what=what,
        figure=figure,
        yardstick=yardstick,
        ratio=ratio,
        target=f"≥ {minimum:g} ×",
        met=ratio >= minimum,
        cpu=cpu,
    )


def flat(
    what: str, figure: str, yardstick: str, *, ratio: float, maximum: float = 1.2, cpu: str = ""
) -> Line:
    """A cost that should not grow."""
    return Line(
        what=what,
        figure=figure,
        yardstick=yardstick,
        ratio=ratio,
        target=f"≤ {maximum:g} ×",
        met=ratio <= maximum,
        cpu=cpu,
    )


def missing(what: str, yardstick: str, figure: str = "") -> Line:
    """A comparison that could not be made here."""
    return Line(what=what, figure=figure, yardstick=f"yardstick missing: {yardstick}")


def cpu_per(sample: Sample, count: float, unit: str) -> str:
    """Describe CPU per piece of work, in all and by part, in milliseconds."""
    parts = ", ".join(
        f"{part} {seconds * 1000 / count:.2f}" for part, seconds in sorted(sample.cpu_by_part.items())
    )
    return f"{sample.cpu_seconds * 1000 / count:.2f} ms/{unit} ({parts})"


def milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:.2f} ms"


def table(title: str, lines: Sequence[Line]) -> str:
    """Lay out lines under their row's name."""
    rows = [HEADINGS, *(line.cells() for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows)
    return "\n".join([f"\n{title}", *(f"  {'  '.join(row)}".rstrip() for row in padded)])
