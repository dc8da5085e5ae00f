"""Expressions come when Debian's cron would have them come, also where clocks are changed."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.a2a.schedules.cron import Cron, CronInvalid, parse_cron

SPRING, AUTUMN = datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)
"""The days on which clocks in Berlin are changed, at 01:00 UTC: 02:00 becomes 03:00, and 03:00 becomes 02:00."""


def ticks(cron: Cron, since: datetime, until: datetime) -> list[datetime]:
    found: list[datetime] = []
    tick = cron.next_after(since)
    while tick is not None and tick <= until:
        found.append(tick)
        tick = cron.next_after(tick)
    return found


@pytest.mark.parametrize(
    ("expression", "day", "expected"),
    [
        ("30 2 * * *", SPRING, "01:00"),
        ("0 3 * * *", SPRING, "01:00"),
        ("*/20 2 * * *", SPRING, ""),
        ("15 * * * *", SPRING, "23:15 00:15 01:15 02:15"),
        ("30 2 * * *", AUTUMN, "00:30"),
        ("*/20 2 * * *", AUTUMN, "00:00 00:20 00:40 01:00 01:20 01:40"),
        ("15 * * * *", AUTUMN, "23:15 00:15 01:15 02:15"),
        ("0 0 * * *", AUTUMN, ""),
    ],
)
def test_clocks_that_are_changed_are_met_as_documented(expression: str, day: datetime, expected: str) -> None:
    cron = parse_cron(expression, "Europe/Berlin")
    found = ticks(cron, day - timedelta(hours=1, minutes=1), day + timedelta(hours=2, minutes=59))
    assert " ".join(tick.strftime("%H:%M") for tick in found) == expected


@settings(max_examples=40, deadline=None)
@given(
    minute=st.sampled_from(["0", "*/7", "30", "59", "*"]),
    hour=st.sampled_from(["2", "*", "1-3", "*/5", "23"]),
    day=st.sampled_from([SPRING, AUTUMN, datetime(2028, 2, 29, tzinfo=UTC)]),
    zone=st.sampled_from(
        ["Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC"]
    ),
    hours=st.integers(1, 40),
)
def test_looking_back_finds_what_looking_ahead_promised(
    minute: str, hour: str, day: datetime, zone: str, hours: int
) -> None:
    cron = parse_cron(f"{minute} {hour} * * *", zone)
    since, until = day - timedelta(hours=hours), day + timedelta(hours=10)
    ahead = ticks(cron, since - timedelta(seconds=1), until)
    assert list(cron.last_until(until, since=since, limit=10_000)) == ahead[::-1]
    assert list(cron.last_until(until, since=since, limit=3)) == ahead[::-1][:3]


@pytest.mark.parametrize(
    ("expression", "zone", "why"),
    [
        ("* * * *", "UTC", "five fields"),
        ("* * * * * *", "UTC", "five fields"),
        ("@daily", "UTC", "five fields"),
        ("61 * * * *", "UTC", "bad minute"),
        ("0 0 30 2 *", "UTC", "bad day-of-month"),
        ("* * * * *", "Mars/Olympus", "time zone"),
        ("* * * * *", "../etc/passwd", "time zone"),
        ("* " * 101, "UTC", "five fields"),
    ],
)
def test_what_never_comes_is_refused(expression: str, zone: str, why: str) -> None:
    with pytest.raises(CronInvalid) as invalid:
        parse_cron(expression, zone)
    assert why in str(invalid.value)


def test_names_and_specials_are_understood() -> None:
    start = datetime(2026, 11, 21, tzinfo=UTC)
    expected = {
        "0 9 * * MON-FRI": datetime(2026, 11, 23, 9, tzinfo=UTC),
        "0 0 L * *": datetime(2026, 11, 30, tzinfo=UTC),
        "0 0 * * 5#3": datetime(2026, 12, 18, tzinfo=UTC),
        "  5   0 29 2 * ": datetime(2028, 2, 29, 0, 5, tzinfo=UTC),
    }
    assert {each: parse_cron(each, "UTC").next_after(start) for each in expected} == expected
