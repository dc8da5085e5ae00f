"""Draw results as SVG: each ratio with its yardstick and target, and the CPU by kind of process.

Ratios have a logarithmic scale with the yardstick in its middle. CPU is drawn as bars of milliseconds.
"""

import math
from collections.abc import Iterator, Sequence
from html import escape

from tests.benchmarks.runner.report import Cpu, Line, Measured

WIDTH, LABELS, STEP, BAR = 1100, 470, 22, 14
ROOM = WIDTH - LABELS - 110
NAMESPACE = 'xmlns="http://www.w3.org/2000/svg"'
WIDEST = 10.0
"""The scale of ratios goes from a tenth of the yardstick to ten times it."""
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#9c755f", "#76b7b2", "#edc948", "#bab0ac")
VERDICTS = {True: "#59a14f", False: "#e15759", None: "#9aa0a6"}


def chart(measured: Sequence[Measured]) -> str:
    """Return the chart of the results."""
    lines = [(f"{each.row}: {line.what}", line) for each in measured for line in each.lines]
    ratios = [(label, line) for label, line in lines if line.ratio is not None]
    costs = [(label, line.cpu) for label, line in lines if isinstance(line.cpu, Cpu)]
    drawn = [*_ratios(ratios, top=40), *_costs(costs, top=90 + STEP * len(ratios))]
    height = 130 + STEP * (len(ratios) + len(costs))
    head = f'<svg {NAMESPACE} width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">'
    return "\n".join([head, f'<rect width="{WIDTH}" height="{height}" fill="white"/>', *drawn, "</svg>", ""])


def _ratios(lines: Sequence[tuple[str, Line]], *, top: float) -> Iterator[str]:
    middle = _place(1.0)
    yield _text(LABELS, top - 14, "Ratio to the yardstick (line: 1 ×; mark: target)")  # noqa: RUF001
    yield f'<line x1="{middle:.1f}" x2="{middle:.1f}" y1="{top}" y2="{top + STEP * len(lines)}" stroke="#444"/>'
    for number, (label, line) in enumerate(lines):
        assert line.ratio is not None
        y, end = top + STEP * number, _place(line.ratio)
        yield _label(y, label)
        yield _bar(min(middle, end), y, abs(end - middle), VERDICTS[line.met])
        yield _text(max(middle, end) + 6, y + BAR - 2, f"{line.ratio:.2f} ×")  # noqa: RUF001
        if line.bound is not None:
            yield _bar(_place(line.bound) - 1, y - 2, 2, "#000", height=BAR + 4)


def _costs(costs: Sequence[tuple[str, Cpu]], *, top: float) -> Iterator[str]:
    parts = sorted({part for _, cpu in costs for part in cpu.milliseconds})
    colours = {part: COLOURS[number % len(COLOURS)] for number, part in enumerate(parts)}
    yield _text(10, top - 14, "CPU by kind of process, each bar to its own scale")
    for number, part in enumerate(parts):
        yield _bar(LABELS + 90 * number, top - 26, BAR, colours[part])
        yield _text(LABELS + 90 * number + 18, top - 14, part)
    for number, (label, cpu) in enumerate(costs):
        y, x, total = top + STEP * number, float(LABELS), sum(cpu.milliseconds.values())
        yield _label(y, label)
        for part, taken in sorted(cpu.milliseconds.items()):
            width = ROOM * taken / total if total > 0 else 0.0
            yield _bar(x, y, width, colours[part], title=f"{part}: {taken:.2f} ms")
            x += width
        yield _text(LABELS + ROOM + 6, y + BAR - 2, f"{total:.2f} ms/{cpu.unit}")


def _place(ratio: float) -> float:
    """Return the position of a ratio. Ratios beyond the scale are drawn at its ends."""
    decades = math.log(min(max(ratio, 1 / WIDEST), WIDEST), WIDEST)
    return LABELS + ROOM * (decades + 1) / 2


def _label(y: float, text: str) -> str:
    return _text(LABELS - 10, y + BAR - 2, text[:72], anchor="end")


def _text(x: float, y: float, text: str, *, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _bar(x: float, y: float, width: float, colour: str, *, height: float = BAR, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" fill="{colour}">{inside}</rect>'
    )
