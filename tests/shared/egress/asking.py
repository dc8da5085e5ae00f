"""What these tests ask with, and what this process connected to meanwhile."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from shared.egress.fetch import FetchLimits, fetch
from shared.egress.policy import EgressPolicy

LENIENT = EgressPolicy(allow_private=True, allow_http=True)
LIMITS = FetchLimits(maximum_bytes=100_000, deadline_seconds=20, idle_seconds=10)
HASTY = FetchLimits(maximum_bytes=100_000, deadline_seconds=0.3, idle_seconds=10)


@contextmanager
def watched_connections() -> Iterator[list[Any]]:
    """Record every address that this process tries to connect to during a block."""
    connected: list[Any] = []
    connect = socket.socket.connect

    def note(connection: socket.socket, address: Any) -> None:
        connected.append(address)
        connect(connection, address)

    with patch.object(socket.socket, "connect", note):
        yield connected


def fetched(
    url: str, *, policy: EgressPolicy = LENIENT, limits: FetchLimits = LIMITS, **options: Any
) -> bytes:
    """Fetch a whole body."""
    with fetch(url, policy=policy, limits=limits, **options) as answer:
        return b"".join(answer.chunks())
