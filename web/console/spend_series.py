"""Spend over time from usage reports: a series for charts, and the burn rate of the balance.

All functions are pure.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.credits.amounts import MICRO
from shared.credits.usage.usage_reports import UsageGroup
from web.console.charts import Series

# A chart has six colours. The sixth is for the sum of all other names.
MAXIMUM_SERIES = 5
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendSeries:
    """The spend in each step of a window, in µcr by name. The name with the highest total comes first."""

    steps: Sequence[datetime]
    by_name: Mapping[str, Sequence[int]]

    @property
    def totals(self) -> Mapping[str, int]:
        """The total spend of each name, in µcr."""
        return {name: sum(values) for name, values in self.by_name.items()}

    @property
    def series(self) -> Series:
        """The five highest series in credits, and one series for the sum of all others.

        Readers cannot distinguish more colours in a chart.
        """
        named = [(name, [value / MICRO for value in values]) for name, values in self.by_name.items()]
        if len(named) <= MAXIMUM_SERIES:
            return named
        rest = [sum(column) for column in zip(*(values for _, values in named[MAXIMUM_SERIES:]), strict=True)]
        return [*named[:MAXIMUM_SERIES], (OTHER, rest)]


def build_spend_series(
    groups: Sequence[UsageGroup], starts_at: datetime, ends_at: datetime, step: timedelta
) -> SpendSeries:
    """Return the spend by value of the report's one dimension. A step without usage has zero."""
    first = _floor(starts_at, step)
    count = int((ends_at - first) / step) + 1
    steps = [first + at * step for at in range(count)]
    places = {at: place for place, at in enumerate(steps)}
    columns: dict[str, list[int]] = defaultdict(lambda: [0] * count)
    for group in groups:
        if group.step is not None and group.step in places:
            columns[group.keys[0] or "?"][places[group.step]] += group.sum.cost
    # Sort by total, so that a chart shows the five names with the highest cost.
    highest_first = sorted(columns.items(), key=lambda item: -sum(item[1]))
    # Omit a model without any cost, such as a free one: it would be a legend entry without a bar.
    return SpendSeries(steps=steps, by_name={name: values for name, values in highest_first if any(values)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRate:
    """The average cost of a day, in µcr, and the time when the balance is used up.

    The time is None if nothing is spent.
    """

    per_day: int
    days_left: int | None
    ends_on: datetime | None


def estimate_burn_rate(spent: int, days: int, available: int, now: datetime) -> BurnRate:
    """Return the burn rate.

    `spent` is the cost of the last `days` whole days, in µcr. `available` is the available balance, in µcr.
    """
    per_day = spent // days
    if per_day <= 0:
        return BurnRate(per_day=0, days_left=None, ends_on=None)
    left = max(0, available) // per_day
    # The year of a datetime is at most 9999, and a tiny burn rate would exceed it.
    ends_on = now + timedelta(days=left) if left <= 36_500 else None  # noqa: PLR2004 (a hundred years)
    return BurnRate(per_day=per_day, days_left=left, ends_on=ends_on)


def start_of_day(now: datetime) -> datetime:
    """Return the beginning of a day, in UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _floor(moment: datetime, step: timedelta) -> datetime:
    # A report's steps begin at whole days or hours, UTC. So the first step may begin before the window.
    day = start_of_day(moment)
    return (
        day
        if step >= timedelta(days=1)
        else moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    )
