"""Publish and fetch messages directly, without Celery tasks. Model calls over RabbitMQ use this module.

Threads share a few connections. After a failure, no thread uses the broker for `cooldown_seconds`, so that no
request waits for a broker that is down. Two kinds of failure start no cooldown: a failure while another connection
succeeded, and a message that the broker rejects.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from amqp.exceptions import MessageNacked
from kombu import Connection, Producer, pools
from kombu.common import maybe_declare
from kombu.exceptions import OperationalError

from shared.errors import ServiceUnavailable
from shared.messaging import amqp_transport
from shared.messaging.broker import SOCKET_SECONDS, Broker

CONNECTIONS = 16
_FAILURES: tuple[type[Exception], ...] = (
    OperationalError,
    *amqp_transport.Transport.connection_errors,
    *amqp_transport.Transport.channel_errors,
)
# Retry once and immediately, because a pooled connection may be stale.
_RETRY = {"max_retries": 1, "interval_start": 0}


class BrokerMessages:
    """A client that publishes and fetches messages of one broker; thread-safe."""

    def __init__(self, broker: Broker) -> None:
        """Store the broker; connects on first use."""
        self.broker = broker
        self._cooldown_until = 0.0
        self._answered_at = 0.0

    def send(self, queue: str, body: str, headers: dict[str, Any]) -> None:
        """Publish a JSON message and wait for the broker's confirmation. Raises ServiceUnavailable."""
        described = self.broker.queue(queue)
        with self._producer() as producer:
            producer.publish(
                body,
                exchange=described.exchange,
                routing_key=described.routing_key,
                declare=[described],
                headers=headers,
                content_type="application/json",
                content_encoding="utf-8",
                # Make the message persistent, so that it survives a restart of the broker.
                delivery_mode=2,
                retry=True,
                retry_policy=_RETRY,
            )

    def take(self, queue: str) -> Any:
        """Fetch the next message of a queue and acknowledge it immediately. Return None if the queue is empty.

        Raises ServiceUnavailable.
        """
        with self._producer() as producer:
            channel: Any = producer.channel
            maybe_declare(self.broker.queue(queue), channel)
            taken = channel.basic_get(queue, no_ack=True)
            return None if taken is None else channel.message_to_python(taken)

    @contextmanager
    def _producer(self) -> Iterator[Producer]:
        began_at = time.monotonic()
        if began_at < self._cooldown_until:
            raise ServiceUnavailable("the broker does not answer")
        try:
            with self._pool.acquire(block=True, timeout=SOCKET_SECONDS) as producer:
                yield producer
            self._answered_at = time.monotonic()
        except _FAILURES as error:
            # The broker responded, so it is not unavailable: the queue is full.
            if isinstance(error.__cause__, MessageNacked):
                raise ServiceUnavailable("the broker refuses the message") from error
            # Otherwise another thread reached the broker meanwhile: only this connection is broken.
            if self._answered_at < began_at:
                self._cooldown_until = time.monotonic() + self.broker.cooldown_seconds
            raise ServiceUnavailable(f"the broker does not answer: {error}") from error

    @cached_property
    def _connection(self) -> Connection:
        return Connection(
            self.broker.celery_url,
            connect_timeout=SOCKET_SECONDS,
            transport_options=dict(self.broker.options),
        )

    @cached_property
    def _pool(self) -> Any:
        return pools.Producers(limit=CONNECTIONS)[self._connection]
