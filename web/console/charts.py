"""Charts as SVG: pure functions of their values, without a clock or inline style.

Widths are percentages or a nested viewBox that stretches. Heights are pixels, so text keeps its size on every
screen. Colours are classes (`s1` to `s6`): the same SVG serves the light and the dark theme, and the content
security policy needs no exception for styles. All text is escaped here.
"""

from collections.abc import Sequence
from html import escape
from math import ceil, floor, log10

from markupsafe import Markup

Series = Sequence[tuple[str, Sequence[float]]]
MAXIMUM_BARS = 90
# The search always ends at 10: a step is at least its power of ten and less than the next power.
_ROUND_STEPS = (1, 2, 2.5, 5, 10)
# _TOP and _FOOT are pixels above the bars for the unit, and below the bars for the dates. _BAR is a bar's
# width in units of the stretched viewBox.
_TOP, _FOOT, _BAR = 18, 22, 10
_FULL, _NEAR = 100, 80
# The stylesheet has colours for six series.
_LAST_SERIES = 6


def axis_steps(value: float, most: int = 5) -> tuple[float, int]:
    """Return the smallest round step that reaches the value in at most `most` steps, and the number of steps."""
    if value <= 0:
        return 1.0, 1
    power = 10.0 ** floor(log10(value / most))
    # The tolerance absorbs the rounding of floats, which would add an empty grid line at the top.
    step = next(size * power for size in _ROUND_STEPS if size * power * most >= value * (1 - 1e-9))
    return step, ceil(value / step - 1e-9)


def stacked_bars(
    days: Sequence[str], series: Series, *, label: str, unit: str, every: int = 5, height: int = 232
) -> Markup:
    """Return a chart of stacked bars by day, in the order of the series.

    The title of each bar contains its values. The chart is designed for at most MAXIMUM_BARS days and six
    series: further series share the last colour.
    """
    base = height - _FOOT
    totals = [sum(values[at] for _, values in series) for at in range(len(days))]
    step, lines = axis_steps(max(totals, default=0))
    scale = (base - _TOP) / (step * lines)
    # Stretch only the bars: text within this viewBox would be distorted.
    stretched = f'viewBox="0 0 {max(len(days), 1) * _BAR} {height}" preserveAspectRatio="none"'
    return Markup(  # noqa: S704 (all text in it is escaped)
        f'<svg class="chart" role="img" aria-label="{escape(label)}" width="100%" height="{height}">'
        f"{_grid(step, lines, scale, base, unit)}"
        f'<svg width="100%" height="{height}" {stretched}>'
        f"{_bars(series, totals, scale, base)}{_titles(days, series, totals, base, unit)}</svg>"
        f'<line class="axis" x1="0" x2="100%" y1="{base}" y2="{base}"/>{_dates(days, every, height)}</svg>'
    )


def sparkline(values: Sequence[float], *, label: str, width: int = 88, height: int = 22) -> Markup:
    """Return a line without axes, with its last point marked. The line shows the trend and no exact values."""
    low, high = min(values, default=0), max(values, default=0)
    # If all values are equal, the span is 0. Use 1 to avoid a division by zero and draw a flat line.
    span = (high - low) or 1
    step = (width - 6) / max(len(values) - 1, 1)
    points = [
        (round(2 + at * step, 1), round(height - 3 - (value - low) / span * (height - 6), 1))
        for at, value in enumerate(values)
    ] or [(2, height - 3)]
    line = " ".join(f"{x:g},{y:g}" for x, y in points)
    x, y = points[-1]
    return Markup(  # noqa: S704 (all text in it is escaped)
        f'<svg class="spark" role="img" aria-label="{escape(label)}" width="{width}" height="{height}">'
        f'<polyline points="{line}"/><circle cx="{x:g}" cy="{y:g}" r="2"/></svg>'
    )


def meter(spent: float, limit: float, *, held: float = 0, label: str, height: int = 8) -> Markup:
    """Return a bar that shows which shares of a limit are spent and held.

    The class of the bar is `fine`, `near` (from 80 %) or `over` (from 100 %).
    """
    # A limit of zero permits no spending, so draw a full bar.
    used = min(spent / limit, 1) * 100 if limit else 100.0
    waiting = min(held / limit * 100, 100 - used) if limit else 0.0
    # Do not count held credits for the level: a call may cost less than its hold.
    level = "over" if used >= _FULL else "near" if used >= _NEAR else "fine"
    held_bar = f'<rect class="held" x="{used:.1f}%" width="{waiting:.1f}%" height="{height}"/>'
    return Markup(  # noqa: S704 (all text in it is escaped)
        f'<svg class="meter {level}" role="img" aria-label="{escape(label)}" width="100%" height="{height}">'
        f'<rect class="room" width="100%" height="{height}"/>'
        f'<rect class="used" width="{used:.1f}%" height="{height}"/>{held_bar if waiting else ""}</svg>'
    )


def retention_bar(share: float, *, label: str) -> Markup:
    """Return a bar from the upload to the deadline of a file.

    A mark on the bar shows the share of the time that has passed, from 0 to 1.
    """
    at = max(0.0, min(share, 1.0)) * 100
    return Markup(  # noqa: S704 (all text in it is escaped)
        f'<svg class="clock" role="img" aria-label="{escape(label)}" width="100%" height="18">'
        f'<line class="g" x1="0" x2="100%" y1="9" y2="9"/><line class="past" x1="0" x2="{at:.1f}%" y1="9" y2="9"/>'
        f'<line class="now" x1="{at:.1f}%" x2="{at:.1f}%" y1="2" y2="16"/></svg>'
    )


def _grid(step: float, lines: int, scale: float, base: int, unit: str) -> str:
    drawn = []
    for line in range(1, lines + 1):
        y = round(base - step * line * scale, 1)
        name = f" {escape(unit)}" if line == lines else ""
        drawn.append(
            f'<line class="g" x1="0" x2="100%" y1="{y:g}" y2="{y:g}"/>'
            f'<text x="-36" y="{y + 4:g}">{_number(step * line)}{name}</text>'
        )
    return "".join(drawn)


def _bars(series: Series, totals: Sequence[float], scale: float, base: int) -> str:
    feet, drawn = [float(base)] * len(totals), []
    for place, (_, values) in enumerate(series, 1):
        path = []
        for at, value in enumerate(values):
            rise = value * scale
            if rise >= 0.4:  # noqa: PLR2004 (less than half a pixel is invisible)
                feet[at] -= rise
                # Leave one pixel between stacked bars, and keep the smallest bar visible.
                path.append(f"M{at * _BAR + 1.4:g} {feet[at]:.1f}h7.2v{max(rise - 1, 0.6):.1f}h-7.2z")
        # Draw one path for all bars of a series: an element for each bar would make the page several times as
        # long.
        drawn.append(f'<path class="s{min(place, _LAST_SERIES)}" d="{"".join(path)}"/>')
    return "".join(drawn)


def _titles(days: Sequence[str], series: Series, totals: Sequence[float], base: int, unit: str) -> str:
    drawn = []
    for at, day in enumerate(days):
        parts = ", ".join(f"{name} {values[at]:.2f}" for name, values in series if values[at] > 0)
        drawn.append(
            # An invisible column of full height has the title, because a low bar is hard to point at.
            f'<rect class="hit" x="{at * _BAR}" y="{_TOP}" width="{_BAR}" height="{base - _TOP}">'
            f"<title>{escape(day)}: {totals[at]:.2f} {escape(unit)}\n{escape(parts)}</title></rect>"
        )
    return "".join(drawn)


def _dates(days: Sequence[str], every: int, height: int) -> str:
    """Return labels for the first day, the last day and some days between.

    A phone shows only the middle label of those between.
    """
    last, drawn = len(days) - 1, []
    for at, day in enumerate(days):
        is_end = at in (0, last)
        # Omit a label shortly before the last label, because the two would overlap.
        if not is_end and (at % every != every - 1 or last - at < every // 2):
            continue
        x = 100 if at == last and last else 0 if at == 0 else round((at + 0.5) * 100 / len(days), 2)
        anchor = "end" if at == last and last else "start" if at == 0 else "middle"
        wide = "" if is_end or at == (len(days) // 2 // every) * every - 1 else ' class="wide"'
        drawn.append(f'<text{wide} x="{x}%" y="{height - 6}" text-anchor="{anchor}">{escape(day)}</text>')
    return "".join(drawn)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:g}"  # noqa: PLR2004 (below ten, decimal places matter)
