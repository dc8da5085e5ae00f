"""The beat scheduler: every entry at start, then each after its interval, independent of the others."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from celery import Celery
from celery.beat import ScheduleEntry

from deploy.embedded.valkey import EmbeddedValkey
from shared.messaging.publisher import create_celery
from workers.beat_scheduler import FixedIntervals
from workers.schedule import build_schedule

HOUR = 3600.0
PATIENCE_SECONDS = 60.0


class Recorded(FixedIntervals):
    """Notes what is sent in place of sending it."""

    def __init__(self, app: Celery) -> None:
        super().__init__(app)
        self.sent: Counter[str] = Counter()

    def apply_entry(self, entry: ScheduleEntry, producer: Any = None) -> None:  # noqa: ARG002 (Celery's signature)
        """Record a message that is due."""
        self.sent[str(entry.name)] += 1


@pytest.fixture
def app(valkey_server: EmbeddedValkey) -> Iterator[Celery]:
    with closing(create_celery(valkey_server.url)) as app:
        yield app


def send_all_due(scheduler: Recorded) -> float:
    """Tick until nothing is due. Return the seconds until the next message."""
    while not (pause := scheduler.tick()):
        assert scheduler.sent.total() < 10_000
    return pause


def test_a_beat_that_starts_sends_every_sweep_at_once(app: Celery) -> None:
    schedule = app.conf.beat_schedule = build_schedule()
    scheduler = Recorded(app)
    for _ in schedule:
        assert scheduler.tick() == 0.0
    assert scheduler.sent == Counter(dict.fromkeys(schedule, 1))


def test_each_is_sent_again_after_its_interval(app: Celery) -> None:
    app.conf.beat_schedule = {
        "often": {"task": "often", "schedule": 0.01},
        "hourly": {"task": "hourly", "schedule": HOUR},
    }
    scheduler = Recorded(app)
    began_at = time.monotonic()
    while scheduler.sent["often"] < 5:
        pause = send_all_due(scheduler)
        assert 0 < pause <= 0.01
        assert time.monotonic() - began_at < PATIENCE_SECONDS
        time.sleep(pause)
    assert time.monotonic() - began_at >= 4 * 0.01
    assert scheduler.sent["hourly"] == 1


def test_beat_sleeps_until_the_next_is_due(app: Celery) -> None:
    app.conf.beat_schedule = {
        "daily": {"task": "daily", "schedule": 24 * HOUR},
        "hourly": {"task": "hourly", "schedule": HOUR},
    }
    scheduler = Recorded(app)
    assert HOUR / 2 < send_all_due(scheduler) <= HOUR
