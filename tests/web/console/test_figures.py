"""Figures and charts, from no values to too many, and without unescaped text."""

from datetime import UTC, datetime, timedelta
from xml.etree import ElementTree as ET

import pytest

from shared.credits.usage.usage_reports import UsageGroup, UsageSum
from web.console import format as written
from web.console.charts import axis_steps, meter, retention_bar, sparkline, stacked_bars
from web.console.spend_series import OTHER, build_spend_series, estimate_burn_rate

NOW = datetime(2026, 11, 22, 9, 41, tzinfo=UTC)
MARKUP = "<b onclick='x'>\"&"


def group(step: datetime, name: str | None, cost: int) -> UsageGroup:
    zero = dict.fromkeys(UsageSum.__dataclass_fields__, 0)
    return UsageGroup(step=step, keys=(name,), sum=UsageSum(**zero | {"cost": cost}))


@pytest.mark.parametrize(
    ("value", "expected"), [(0, (1.0, 1)), (1, (0.2, 5)), (5, (1, 5)), (49.82, (10, 5)), (0.003, (0.001, 3))]
)
def test_a_grid_has_round_steps_and_few_lines(value: float, expected: tuple[float, int]) -> None:
    assert axis_steps(value) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("days", "series"),
    [
        ([], []),
        (["1 Nov"], [("a", [0.0])]),
        (["1 Nov", "2 Nov"], [(MARKUP, [1.0, 0.0]), ("b", [2.5, 1e6])]),
        ([f"{at}" for at in range(90)], [(f"{at}", [float(at)] * 90) for at in range(6)]),
    ],
    ids=["nothing", "zeros", "markup", "many"],
)
def test_a_chart_is_well_formed_whatever_it_is_given(
    days: list[str], series: list[tuple[str, list[float]]]
) -> None:
    drawn = stacked_bars(days, series, label=MARKUP, unit="cr")
    root = ET.fromstring(drawn)
    assert root.get("aria-label") == MARKUP
    assert len(list(root.iter("title"))) == len(days)
    assert " style=" not in drawn
    assert "<b" not in drawn


def test_a_line_a_meter_and_a_clock_stay_within_their_bounds() -> None:
    for values in ([], [0.0], [1.0, 1.0], [3.0, -1.0]):
        ET.fromstring(sparkline(values, label=MARKUP))
    for spent, limit, level in [(0, 0, "over"), (1, 2, "fine"), (8, 10, "near"), (11, 10, "over")]:
        root = ET.fromstring(meter(spent, limit, held=5, label=MARKUP))
        assert root.get("class") == f"meter {level}"
    for share in (-1.0, 0.5, 7.0):
        ET.fromstring(retention_bar(share, label=MARKUP))


def test_spending_has_every_step_and_puts_the_cheapest_together() -> None:
    start = NOW - timedelta(days=3)
    day = datetime(2026, 11, 20, tzinfo=UTC)
    groups = [group(day, f"model-{at}", at * 1_000_000) for at in range(1, 8)]
    spent = build_spend_series(groups, start, NOW, timedelta(days=1))
    assert [at.day for at in spent.steps] == [19, 20, 21, 22]
    assert [name for name, _ in spent.series] == [*(f"model-{at}" for at in (7, 6, 5, 4, 3)), OTHER]
    assert spent.series[-1][1] == [0, 3.0, 0, 0]
    assert spent.totals["model-7"] == 7_000_000
    assert build_spend_series([], start, NOW, timedelta(hours=1)).series == []


def test_credits_last_as_long_as_the_mean_of_days_says() -> None:
    assert estimate_burn_rate(0, 7, 10, NOW).days_left is None
    assert estimate_burn_rate(70, 7, 105, NOW).days_left == 10
    assert estimate_burn_rate(70, 7, -5, NOW).days_left == 0
    assert estimate_burn_rate(7, 7, 10**15, NOW).ends_on is None


def test_amounts_counts_and_moments_are_written_for_people() -> None:
    assert written.money(-1_284_507_312) == written.Money(whole="\N{MINUS SIGN}1,284.50", rest="7312")
    assert [written.credits(at) for at in (0, 4_999, 5_000, -1_000_000, 1_234_567_890_000)] == [
        *("0.00", "0.00", "0.01", "\N{MINUS SIGN}1.00", "1,234,567.89")
    ]
    assert [written.short(at) for at in (41, 9_999, 12_345, 574_000_000)] == [
        "41",
        "9,999",
        "12.3 k",
        "574 M",
    ]
    assert [written.size(at) for at in (0, 1023, 2_500_000)] == ["0 B", "1023 B", "2.4 MiB"]
    spans = (0, 50, 3000, 90_000, 200_000, -7200, 90 * 86_400)
    told = [written.relative(NOW - timedelta(seconds=at), NOW) for at in spans]
    assert told == ["now", "1 min ago", "50 min ago", "yesterday", "2 days ago", "in 2 h", "24 Aug 2026"]
    assert written.absolute(NOW.replace(year=2025), NOW) == "22 Nov 2025, 09:41"
    assert written.percent(1, 0) == "0 %"
