"""Corrections to kombu's Redis transport.

Each of the three corrections was measured against kombu 5.7. A test fails if the parts of kombu that they use
change:

- When a broker restarts while late-acknowledged messages are in flight, the closing channel asks a transport without a
  client for the connection's parameters. The AttributeError ends the worker. Here it is a connection error, and the
  worker reconnects.
- A server that refuses writes (disk full, replicas gone) returns an error that kombu takes for a bug of the
  application; it ends the worker too. Here the worker reconnects until the server accepts writes.
- kombu builds a new `redis.Redis` for every command, a fifth of the cost of publishing. Here each pool keeps one
  client.

Queues are read round robin as in kombu, except queues from which the process currently wants no messages.
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
    """Make kombu use the corrected transport for `redis://`, `rediss://` and `sentinel://` URLs."""
    TRANSPORT_ALIASES["redis"] = TRANSPORT_ALIASES["rediss"] = "shared.messaging.redis_transport:Transport"
    TRANSPORT_ALIASES["sentinel"] = "shared.messaging.redis_transport:SentinelTransport"


# Use Any, because kombu's type stubs lack the attributes of this class.
_RoundRobin: Any = scheduling.round_robin_cycle


class QueueRoundRobin(_RoundRobin):  # type: ignore[misc] # its types say less than it does
    """kombu's round robin over the queues that a process reads. Queues of parked calls are read first."""

    closed: ClassVar[Callable[[], Collection[str]]] = frozenset
    """Returns the queues to skip; set by the process that skips some."""

    def update(self, it: Iterable[str]) -> None:
        """Set the queues, with the queues of parked calls first."""
        super().update(sorted(it, key=_comes_later))

    def consume(self, n: int) -> list[str]:
        """Return the queues of the next read, in order."""
        closed = QueueRoundRobin.closed()
        queues: list[str] = self.items[:n]
        return [queue for queue in queues if queue not in closed] if closed else queues

    def rotate(self, last_used: str) -> str:
        """Move the queue that was read to the end, unless it is a queue of parked calls."""
        if _comes_later(last_used):
            super().rotate(last_used)
        return last_used


def _comes_later(queue: str) -> bool:
    return not queue.startswith(MODELS_ASIDE)


_RedisChannel: Any = redis.Channel


class _Corrected(_RedisChannel):  # type: ignore[misc] # its types say less than it does
    """kombu's channel with the corrections of the module's docstring."""

    queue_order_strategy = "shared.messaging.redis_transport:QueueRoundRobin"
    _kept: tuple[Any, Any] | None = None

    def _connparams(self, asynchronous: bool = False) -> Any:  # noqa: FBT001, FBT002 (kombu's signature)
        if self.connection.client is None:
            raise RedisConnectionError("the broker connection is closed")
        return super()._connparams(asynchronous=asynchronous)

    @contextlib.contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """Yield the pool's client, which is created once."""
        if client is None:
            pool = self.pool
            if self._kept is None or self._kept[0] is not pool:
                self._kept = (pool, self._create_client())
            client = self._kept[1]
        yield client


class Channel(_Corrected):
    """The channel to one server."""


class SentinelChannel(_Corrected, redis.SentinelChannel):
    """The channel to the primary that Sentinel names."""


class Transport(redis.Transport):
    """kombu's Redis transport with our channel."""

    Channel = Channel
    # Let a ResponseError cause a reconnect instead of ending the worker: see the second correction.
    connection_errors = (*redis.Transport.connection_errors, ResponseError)


class SentinelTransport(redis.SentinelTransport):
    """kombu's Sentinel transport with our channel."""

    Channel = SentinelChannel
    connection_errors = (*redis.SentinelTransport.connection_errors, ResponseError)
