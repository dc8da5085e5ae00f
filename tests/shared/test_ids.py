"""Ids are in the order in which they are made, and tell when that was."""

import itertools
import time
from datetime import UTC, datetime, timedelta
from uuid import RFC_4122

import pytest

from shared.ids import least_id, made_at, new_id

MOMENT = datetime(2026, 11, 23, 8, 41, 12, 999_000, tzinfo=UTC)
NANOSECONDS = int(MOMENT.timestamp()) * 10**9 + 999_000_000
QUARTER_OF_A_MICROSECOND = 250


def test_ids_of_one_millisecond_are_in_the_order_in_which_they_are_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = itertools.count(NANOSECONDS, QUARTER_OF_A_MICROSECOND)
    monkeypatch.setattr(time, "time_ns", lambda: next(clock))
    made = [new_id() for _ in range(8_000)]  # two milliseconds
    assert made == sorted(set(made))
    assert {(at.version, at.variant) for at in made} == {(7, RFC_4122)}
    assert {made_at(at) for at in made[:4_000]} == {MOMENT.timestamp()}
    assert least_id(MOMENT) <= made[0]
    assert made[3_999] < least_id(MOMENT + timedelta(milliseconds=1)) <= made[4_000]


def test_ids_of_one_moment_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NANOSECONDS)
    assert len({new_id() for _ in range(1_000)}) == 1_000
