"""Corrections to kombu's Redis transport, the broker of jobs, under its own name.

Three, each found by measurement against kombu 5.7 (a test fails when the parts relied upon change):

- When a broker restarts while late-acknowledged messages are in flight, the closing channel asks a transport that has
  lost its client for the connection's parameters and raises AttributeError, which ends the worker. Here that is the
  connection error it really is, and the worker reconnects.
- A server that refuses to write, because its disk is full or its replicas are gone, answers an error that kombu takes
  for our mistake, which ends the worker too. Here the worker reconnects until the server writes again.
- A new `redis.Redis` is built for every command, a fifth of the cost of publishing; here one is kept per pool.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError


def register_transport() -> None:
    """Make `redis://` and `rediss://` broker addresses use the corrected transport."""
    TRANSPORT_ALIASES["redis"] = TRANSPORT_ALIASES["rediss"] = "shared.broker:Transport"


class Channel(redis.Channel):
    """kombu's channel with a closed transport reported as such, and its client kept."""

    _kept: tuple[Any, Any] | None = None

    def _connparams(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 (kombu's signature)
        if self.connection.client is None:
            raise RedisConnectionError("the broker connection is closed")
        return super()._connparams(asynchronous=asynchronous)  # type: ignore[misc]

    @contextlib.contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Give the client of the current pool, made once."""
        if client is None:
            pool = self.pool
            if self._kept is None or self._kept[0] is not pool:
                self._kept = (pool, self._create_client())  # type: ignore[attr-defined]
            client = self._kept[1]
        yield client


class Transport(redis.Transport):
    """kombu's Redis transport with our channel."""

    Channel = Channel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)
