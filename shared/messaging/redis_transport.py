"""Corrections to kombu's Redis transport, the broker of jobs, under its own name.

Three, each found by measurement against kombu 5.7 (a test fails when the parts relied upon change):

- When a broker restarts while late-acknowledged messages are in flight, the closing channel asks a transport that has
  lost its client for the connection's parameters and raises AttributeError, which ends the worker. Here that is the
  connection error it really is, and the worker reconnects.
- A server that refuses to write, because its disk is full or its replicas are gone, answers an error that kombu takes
  for our mistake, which ends the worker too. Here the worker reconnects until the server writes again.
- A new `redis.Redis` is built for every command, a fifth of the cost of publishing; here one is kept per pool.

Queues are read in turn, as kombu does it, but without those from which a process wants nothing now.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, ClassVar

from kombu.transport import TRANSPORT_ALIASES, redis
from kombu.utils import scheduling
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from shared.messaging.queues import MODELS_ASIDE


def register_transport() -> None:
    """Make `redis://`, `rediss://` and `sentinel://` broker addresses use the corrected transport."""
    TRANSPORT_ALIASES["redis"] = TRANSPORT_ALIASES["rediss"] = "shared.messaging.redis_transport:Transport"
    TRANSPORT_ALIASES["sentinel"] = "shared.messaging.redis_transport:SentinelTransport"


_RoundRobin: Any = scheduling.round_robin_cycle


class QueueRoundRobin(_RoundRobin):  # type: ignore[misc] # its types say less than it does
    """kombu's round robin over the queues that a process reads now; what was put aside comes first."""

    closed: ClassVar[Callable[[], Collection[str]]] = frozenset
    """Tells which queues not to read; set in the process that leaves some out."""

    def update(self, it: Iterable[str]) -> None:
        """Take these queues, in their first order."""
        super().update(sorted(it, key=_comes_later))

    def consume(self, n: int) -> list[str]:
        """Give the queues of the next read, in order."""
        closed = QueueRoundRobin.closed()
        queues: list[str] = self.items[:n]
        return [queue for queue in queues if queue not in closed] if closed else queues

    def rotate(self, last_used: str) -> str:
        """Let the queue that was read wait for its next turn."""
        if _comes_later(last_used):
            super().rotate(last_used)
        return last_used


def _comes_later(queue: str) -> bool:
    return not queue.startswith(MODELS_ASIDE)


_RedisChannel: Any = redis.Channel


class _Corrected(_RedisChannel):  # type: ignore[misc] # its types say less than it does
    """kombu's channel with a closed transport reported as such, its client kept, and its queues read in our order."""

    queue_order_strategy = "shared.messaging.redis_transport:QueueRoundRobin"
    _kept: tuple[Any, Any] | None = None

    def _connparams(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 (kombu's signature)
        if self.connection.client is None:
            raise RedisConnectionError("the broker connection is closed")
        return super()._connparams(asynchronous=asynchronous)

    @contextlib.contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Give the client of the current pool, made once."""
        if client is None:
            pool = self.pool
            if self._kept is None or self._kept[0] is not pool:
                self._kept = (pool, self._create_client())
            client = self._kept[1]
        yield client


class Channel(_Corrected):
    """The channel to one server."""


class SentinelChannel(_Corrected, redis.SentinelChannel):
    """The channel to the server that Sentinel names."""


class Transport(redis.Transport):
    """kombu's Redis transport with our channel."""

    Channel = Channel
    connection_errors = (*redis.Transport.connection_errors, ResponseError)


class SentinelTransport(redis.SentinelTransport):
    """kombu's Sentinel transport with our channel."""

    Channel = SentinelChannel
    connection_errors = (*redis.SentinelTransport.connection_errors, ResponseError)
