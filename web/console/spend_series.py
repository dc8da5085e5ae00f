"""Spend over time from usage reports: a series for charts, and the burn rate of the balance. Pure functions."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.credits.amounts import MICRO
from shared.credits.usage.usage_reports import UsageGroup
from web.console.charts import Series

# The sixth colour of a chart is for all others.
MAXIMUM_SERIES = 5
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendSeries:
    """The spend in each step of a window, in µcr by name, highest total first."""

    steps: Sequence[datetime]
    by_name: Mapping[str, Sequence[int]]

    @property
    def totals(self) -> Mapping[str, int]:
        """The total of each name, µcr."""
        return {name: sum(values) for name, values in self.by_name.items()}

    @property
    def series(self) -> Series:
        """The five highest in credits, and all others as one: a chart has no more colours that readers tell apart."""
        named = [(name, [value / MICRO for value in values]) for name, values in self.by_name.items()]
        if len(named) <= MAXIMUM_SERIES:
            return named
        rest = [sum(column) for column in zip(*(values for _, values in named[MAXIMUM_SERIES:]), strict=True)]
        return [*named[:MAXIMUM_SERIES], (OTHER, rest)]


def build_spend_series(
    groups: Sequence[UsageGroup], starts_at: datetime, ends_at: datetime, step: timedelta
) -> SpendSeries:
    """Return the series of a report's one dimension, with zero for each step without usage."""
    first = _floor(starts_at, step)
    count = int((ends_at - first) / step) + 1
    steps = [first + at * step for at in range(count)]
    places = {at: place for place, at in enumerate(steps)}
    columns: dict[str, list[int]] = defaultdict(lambda: [0] * count)
    for group in groups:
        if group.step is not None and group.step in places:
            columns[group.keys[0] or "?"][places[group.step]] += group.sum.cost
    # By the total, so that the five series of a chart are those that cost most.
    highest_first = sorted(columns.items(), key=lambda item: -sum(item[1]))
    # A model without any cost, such as a free one, would be a legend entry without a bar.
    return SpendSeries(steps=steps, by_name={name: values for name, values in highest_first if any(values)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRate:
    """The average cost of a day, µcr, and when the balance is used up; None if nothing is spent."""

    per_day: int
    days_left: int | None
    ends_on: datetime | None


def estimate_burn_rate(spent: int, days: int, available: int, now: datetime) -> BurnRate:
    """Return the burn rate from the cost of some whole days, µcr, and the available balance, µcr."""
    per_day = spent // days
    if per_day <= 0:
        return BurnRate(per_day=0, days_left=None, ends_on=None)
    left = max(0, available) // per_day
    # A datetime ends with the year 9999, which a tiny burn rate exceeds.
    ends_on = now + timedelta(days=left) if left <= 36_500 else None  # noqa: PLR2004 (a hundred years)
    return BurnRate(per_day=per_day, days_left=left, ends_on=ends_on)


def start_of_day(now: datetime) -> datetime:
    """Return the beginning of the day, UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _floor(moment: datetime, step: timedelta) -> datetime:
    # The steps of a report begin at whole days or hours, UTC, so the first one may begin before the window.
    day = start_of_day(moment)
    return (
        day
        if step >= timedelta(days=1)
        else moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    )
