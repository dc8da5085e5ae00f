"""Work figures out of reports for pages: series by day for charts, what burns, how long credits last. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from shared.credits.amounts import MICRO
from shared.credits.usage.usage_reports import UsageGroup
from web.console.charts import Series

MAXIMUM_SERIES = 5
OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendSeries:
    """What was spent in each step of a span, µcr, by what it was spent on; the dearest first."""

    steps: Sequence[datetime]
    by_name: Mapping[str, Sequence[int]]

    @property
    def totals(self) -> Mapping[str, int]:
        """What each came to."""
        return {name: sum(values) for name, values in self.by_name.items()}

    @property
    def series(self) -> Series:
        """The dearest in credits, and all others as one: more are not told apart."""
        named = [(name, [value / MICRO for value in values]) for name, values in self.by_name.items()]
        if len(named) <= MAXIMUM_SERIES:
            return named
        rest = [sum(column) for column in zip(*(values for _, values in named[MAXIMUM_SERIES:]), strict=True)]
        return [*named[:MAXIMUM_SERIES], (OTHER, rest)]


def build_spend_series(
    groups: Sequence[UsageGroup], starts_at: datetime, ends_at: datetime, step: timedelta
) -> SpendSeries:
    """Lay a series of one dimension out, with a zero for each step that has nothing."""
    first = _floor(starts_at, step)
    count = int((ends_at - first) / step) + 1
    steps = [first + at * step for at in range(count)]
    places = {at: place for place, at in enumerate(steps)}
    columns: dict[str, list[int]] = defaultdict(lambda: [0] * count)
    for group in groups:
        if group.step is not None and group.step in places:
            columns[group.keys[0] or "?"][places[group.step]] += group.sum.cost
    dearest = sorted(columns.items(), key=lambda item: -sum(item[1]))
    return SpendSeries(steps=steps, by_name={name: values for name, values in dearest if any(values)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BurnRate:
    """What a day costs on average, µcr, and when nothing will be left; None where nothing is spent."""

    per_day: int
    days_left: int | None
    ends_on: datetime | None


def estimate_burn_rate(spent: int, days: int, available: int, now: datetime) -> BurnRate:
    """Work it out from what some whole days cost."""
    per_day = spent // days
    if per_day <= 0:
        return BurnRate(per_day=0, days_left=None, ends_on=None)
    left = max(0, available) // per_day
    ends_on = now + timedelta(days=left) if left <= 36_500 else None  # noqa: PLR2004 (a hundred years)
    return BurnRate(per_day=per_day, days_left=left, ends_on=ends_on)


def start_of_day(now: datetime) -> datetime:
    """Give the beginning of the day, UTC."""
    return now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _floor(moment: datetime, step: timedelta) -> datetime:
    day = start_of_day(moment)
    return (
        day
        if step >= timedelta(days=1)
        else moment.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    )
