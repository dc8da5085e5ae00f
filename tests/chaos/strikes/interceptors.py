"""Take pending messages out of the broker as an additional consumer, and put them back: Valkey's lists, or RabbitMQ.

Messages keep every byte, so the next worker receives them with their original headers.
"""

import contextlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import redis
from kombu import Connection
from kombu.exceptions import OperationalError
from redis.backoff import NoBackoff
from redis.retry import Retry

from shared.messaging import amqp_transport
from shared.messaging.broker import EXCHANGE, KEY_PREFIX
from shared.messaging.queues import MODELS, MODELS_ASIDE, QUEUES

TAKE_SECONDS = 0.1
"""How long to wait for a message."""
SOCKET_SECONDS = 2.0
_NAME = "tap"


class BrokerUnavailable(Exception):
    """The broker accepts no connections or commands now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InterceptedMessage:
    """A message that is in no queue now."""

    queue: str
    content: Any


class Interceptor(Protocol):
    """Access to the pending messages of a broker."""

    message_kind: str
    """What its messages are called."""

    def take(self) -> InterceptedMessage | None:
        """Remove and return a message of any queue if one is pending or arrives soon. Raises BrokerAway."""

    def put(self, taken: InterceptedMessage) -> None:
        """Put a message at the end of its queue that is read next; a repeated call puts a copy. Raises BrokerAway."""

    def close(self) -> None:
        """Close the connections."""


class ValkeyInterceptor(Interceptor):
    """The lists of a Valkey: all queues, or those of model calls alone.

    Valkey delivers a message to the client that has waited longest, which is an idle worker. This class therefore
    unblocks the waiting workers, as if their timeout had passed, and they wait again behind it.
    """

    def __init__(self, url: str, chance: random.Random, *, is_for_calls: bool = False) -> None:
        self._client = redis.Redis.from_url(
            url,
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=SOCKET_SECONDS,
            retry=Retry(NoBackoff(), 0),
            client_name=_NAME,
        )
        self._random = chance
        self.message_kind = "call" if is_for_calls else "message"
        self._keys = [KEY_PREFIX + queue for queue in (MODELS if is_for_calls else QUEUES)]

    def take(self) -> InterceptedMessage | None:
        with _translating_errors(redis.RedisError):
            aside = [key.decode() for key in self._client.scan_iter(match=f"{KEY_PREFIX}{MODELS_ASIDE}*")]
            keys = [*self._keys, *aside]
            self._random.shuffle(keys)  # BLMPOP takes from the first of these keys that has a message.
            found = self._wait(keys)
        return None if found is None else InterceptedMessage(queue=found[0].decode(), content=found[1])

    def put(self, taken: InterceptedMessage) -> None:
        with _translating_errors(redis.RedisError):
            self._client.rpush(taken.queue, taken.content)

    def close(self) -> None:
        self._client.close()

    def _wait(self, keys: Sequence[str]) -> tuple[bytes, bytes] | None:
        connection: Any = self._client.connection_pool.get_connection()
        try:
            connection.send_command("BRPOP", *keys, TAKE_SECONDS)
            self._unblock_waiting_workers()
            found: tuple[bytes, bytes] | None = connection.read_response()
        except BaseException:
            connection.disconnect()
            raise
        finally:
            self._client.connection_pool.release(connection)
        return found

    def _unblock_waiting_workers(self) -> None:
        clients: Any = self._client.client_list()
        for each in clients:
            if each["cmd"] == "brpop" and each["name"] != _NAME:
                self._client.client_unblock(each["id"])


class RabbitMQInterceptor(Interceptor):
    """The queues of a RabbitMQ."""

    message_kind = "message"

    def __init__(self, url: str, chance: random.Random) -> None:
        self._url = url
        self._random = chance
        self._connection: Connection | None = None

    def take(self) -> InterceptedMessage | None:
        with self._asked() as channel:
            for queue in self._random.sample(QUEUES, len(QUEUES)):
                if (found := channel.basic_get(queue, no_ack=True)) is not None:
                    return InterceptedMessage(queue=queue, content=found)
        return None

    def put(self, taken: InterceptedMessage) -> None:
        with self._asked() as channel:
            channel.basic_publish(taken.content, exchange=EXCHANGE.name, routing_key=taken.queue)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.collect()
            self._connection = None

    @contextlib.contextmanager
    def _asked(self) -> Any:
        try:
            with _translating_errors(OperationalError, OSError, *amqp_transport.Transport.connection_errors):
                if self._connection is None:
                    self._connection = Connection(
                        self._url,
                        connect_timeout=SOCKET_SECONDS,
                        transport_options={
                            "confirm_publish": True,
                            "read_timeout": SOCKET_SECONDS,
                            "write_timeout": SOCKET_SECONDS,
                        },
                    )
                    self._connection.ensure_connection(max_retries=1, interval_start=0)
                yield self._connection.default_channel
        except BrokerUnavailable:
            self.close()
            raise


@contextlib.contextmanager
def _translating_errors(*kinds: type[Exception]) -> Any:
    try:
        yield
    except kinds as error:
        raise BrokerUnavailable(str(error)) from error
