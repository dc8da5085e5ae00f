"""A fake upstream and a router, both real enough to use sockets."""

from collections.abc import Iterator

import pytest

from shared.models.providers.routing import Router
from shared.models.providers.watchdog import Watchdog
from tests.support.upstreams import FakeUpstream


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
    """A router whose watchdog looks often."""
    running = Router(watchdog=Watchdog(look_every_seconds=0.01))
    yield running
    running.close()
