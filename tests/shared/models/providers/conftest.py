"""A fake upstream and a router, both real enough to use sockets."""

import threading
from collections.abc import Iterator

import pytest

from shared.models.providers import connections, openai_compatible, routing, watchdog
from shared.models.providers.routing import Router
from shared.models.providers.watchdog import Call, Watchdog
from tests.support.data.monotonic_clock import MonotonicClock
from tests.support.models.upstreams import FakeUpstream


@pytest.fixture
def upstream() -> Iterator[FakeUpstream]:
    """An upstream that answers three words."""
    with FakeUpstream() as running:
        yield running


@pytest.fixture
def other_upstream() -> Iterator[FakeUpstream]:
    """A second one, to fall back on."""
    with FakeUpstream() as running:
        yield running


@pytest.fixture
def router() -> Iterator[Router]:
    """A router whose watchdog polls often."""
    running = Router(watchdog=Watchdog(check_interval_seconds=0.01))
    yield running
    running.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> MonotonicClock:
    """The time by which calls are bounded."""
    clock = MonotonicClock()
    for module in (connections, openai_compatible, routing, watchdog):
        monkeypatch.setattr(module, "time", clock)
    return clock


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once the whole request of a call has left, and the call knows."""
    return set_by("mark_sent", monkeypatch)


@pytest.fixture
def listening(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a call waits for bytes of its answer's body, and its silence is counted; clear it to wait for more."""
    return set_by("resume_timer", monkeypatch)


def set_by(name: str, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Make an event that is set whenever this method of a call has returned."""
    has_returned = threading.Event()
    note = getattr(Call, name)

    def tell(call: Call, *said: object) -> None:
        note(call, *said)
        has_returned.set()

    monkeypatch.setattr(Call, name, tell)
    return has_returned
