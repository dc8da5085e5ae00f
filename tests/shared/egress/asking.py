"""What these tests ask with, and what this process connected to meanwhile."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from shared.egress.fetching import FetchLimits, fetch
from shared.egress.policy import EgressPolicy

LENIENT = EgressPolicy(allow_private=True, allow_http=True)
LIMITS = FetchLimits(maximum_bytes=100_000, deadline_seconds=20, idle_seconds=10)
HASTY = FetchLimits(maximum_bytes=100_000, deadline_seconds=0.3, idle_seconds=10)

_connected: list[Any] = []
_watching = [False]


def _audit(event: str, arguments: tuple[Any, ...]) -> None:
    if _watching[0] and event == "socket.connect":
        _connected.append(arguments[1])


sys.addaudithook(_audit)


@contextmanager
def watched_connections() -> Iterator[list[Any]]:
    """List every address that this process tries to connect to meanwhile, whatever becomes of it."""
    _connected.clear()
    _watching[0] = True
    try:
        yield _connected
    finally:
        _watching[0] = False


def fetched(
    url: str, *, policy: EgressPolicy = LENIENT, limits: FetchLimits = LIMITS, **options: Any
) -> bytes:
    """Fetch a whole body."""
    with fetch(url, policy=policy, limits=limits, **options) as answer:
        return b"".join(answer.chunks())
