"""The broker of jobs' messages: one interface to the functions that differ between brokers.

`Broker.of(url)` returns the broker of a URL: Valkey or Redis, one of these behind Sentinel, or RabbitMQ. On Valkey
the publisher checks a queue's length before it sends; RabbitMQ bounds its queues itself. `docs/guides/brokers.md`
compares them and explains how to run each.
"""

import threading
from abc import ABC, abstractmethod
from contextlib import closing
from functools import cached_property
from typing import Any, ClassVar
from urllib.parse import SplitResult, parse_qsl, urlsplit

import redis
from amqp.exceptions import NotFound
from kombu import Connection, Exchange, Queue
from kombu.exceptions import OperationalError
from redis.sentinel import Sentinel

from shared.config.broker_urls import (
    BROKER_SCHEMES,
    RABBITMQ_SCHEMES,
    SENTINEL_SCHEMES,
    VALKEY_SCHEMES,
    require_scheme,
    scheme_of,
    with_tls_verification,
)
from shared.errors import ServiceUnavailable
from shared.messaging import amqp_transport, redis_transport
from shared.messaging.queues import MODELS, MODELS_ASIDE, QUEUES
from shared.messaging.valkey import connect_valkey

KEY_PREFIX = "quartermaster:"
CALL_QUEUES = (*MODELS, MODELS_ASIDE)

JOB_MESSAGES_LIMIT = 1_000
"""Most messages of jobs in a queue. Without workers more would only use the broker's memory."""
CALLS_LIMIT = 10_000
"""Most model calls in a RabbitMQ queue; web processes refuse calls far below this (QUEUED_MODEL_CALLS)."""

VISIBILITY_TIMEOUT_SECONDS = 3600
CONSUMER_TIMEOUT_SECONDS = 1800
"""After this time an unacknowledged message of a live worker goes to another; no job takes longer."""
DELIVERY_LIMIT = 20
HEARTBEAT_SECONDS = 20
CONNECT_SECONDS = 2.0
SOCKET_SECONDS = 5.0


class Broker(ABC):
    """A broker, identified by its URL; connects on first use."""

    cooldown_seconds: ClassVar[float] = 0.0
    """How long a publisher leaves a broker alone after a failure, if failing is slow."""

    def __init__(self, url: str) -> None:
        """Store the URL; connects on first use."""
        self.url = url

    @staticmethod
    def of(url: str) -> "Broker":
        """Return the broker of a URL. Raises ValueError, which lists the known schemes, if the scheme is unknown."""
        return _KINDS[scheme_of(require_scheme(url, BROKER_SCHEMES))](url)

    @property
    def settings(self) -> dict[str, Any]:
        """Celery's settings that depend on the broker."""
        return {
            "broker_address": self.url,
            "broker_url": self.celery_url,
            "broker_transport_options": self.options,
            "task_queues": [self.queue(name) for name in QUEUES],
        }

    @property
    def celery_url(self) -> str:
        """The URL in the form that Celery parses; the setting `broker_address` keeps the original."""
        return with_tls_verification(self.url)

    @property
    @abstractmethod
    def options(self) -> dict[str, Any]:
        """The transport's options, with a limit on every wait."""

    @abstractmethod
    def queue(self, name: str) -> Queue:
        """Return a queue as workers and publishers declare it."""

    @abstractmethod
    def depth(self, queue: str) -> int:
        """Return the number of messages that no worker has taken yet. Raises ServiceUnavailable."""

    def is_full(self, queue: str) -> bool:  # noqa: ARG002 (used by subclasses)
        """Return whether a publisher should drop a job's message for this queue. Raises ServiceUnavailable."""
        return False

    @abstractmethod
    def close(self) -> None:
        """Close the connections; the next use opens new ones."""


class ValkeyBroker(Broker):
    """Valkey or Redis, where each queue is a list."""

    def __init__(self, url: str) -> None:
        """Register the transport; connects on first use."""
        super().__init__(url)
        redis_transport.register_transport()

    @property
    def options(self) -> dict[str, Any]:
        """Options of kombu's Redis transport."""
        return {
            "visibility_timeout": VISIBILITY_TIMEOUT_SECONDS,
            "unacked_restore_interval": 5,
            "unacked_restore_throttle": 1,
            # Without these a broker that accepts connections but does not respond would block publishers for ever.
            "socket_timeout": 5,
            "socket_connect_timeout": 1,
            "socket_keepalive": True,
            "health_check_interval": 10,
            # One list for each queue; by default kombu polls one for each of four priorities.
            "priority_steps": [0],
            # Prefix the keys, because other services may share the server.
            "global_keyprefix": KEY_PREFIX,
        }

    def queue(self, name: str) -> Queue:
        """Return a queue. Messages of model calls are not acknowledged.

        Acknowledging a message costs as much as all other work for it together. Instead, the web process sends a
        lost call again.
        """
        return Queue(name, no_ack=name.startswith(CALL_QUEUES))

    def depth(self, queue: str) -> int:
        """Return the length of the queue's list."""
        try:
            length: Any = self._valkey.llen(KEY_PREFIX + queue)
        except redis.RedisError as error:
            raise ServiceUnavailable(f"the broker does not answer: {error}") from error
        return int(length)

    def is_full(self, queue: str) -> bool:
        """Return whether the queue has reached JOB_MESSAGES_LIMIT."""
        return self.depth(queue) >= JOB_MESSAGES_LIMIT

    def close(self) -> None:
        """Close the client's connections."""
        self._valkey.close()

    @cached_property
    def _valkey(self) -> redis.Redis:
        return connect_valkey(self.url)


class SentinelBroker(ValkeyBroker):
    """The Valkey or Redis that Sentinel names as primary.

    The URL has Celery's form, `sentinel://:password@host:26379;sentinel://other:26379/0`, with `?master_name=…` and,
    for sentinels with a password of their own, `&sentinel_password=…`.
    """

    def __init__(self, url: str) -> None:
        """Parse the URL; connects on first use."""
        addresses, _, query = url.partition("?")
        parts = [urlsplit(address) for address in addresses.split(";")]
        self._hosts = [(part.hostname or "127.0.0.1", part.port or 26379) for part in parts]
        self._credentials, self._database = _credentials(parts[0]), parts[-1].path.strip("/") or "0"
        self._query = dict(parse_qsl(query))
        super().__init__(url)

    @property
    def celery_url(self) -> str:
        """All sentinels, with the credentials of the first and the database of the last."""
        return ";".join(
            f"sentinel://{self._credentials}{host}:{port}/{self._database}" for host, port in self._hosts
        )

    @property
    def options(self) -> dict[str, Any]:
        """Options of kombu's Sentinel transport."""
        return super().options | {"master_name": self._primary, "sentinel_kwargs": self._of_sentinels}

    @property
    def _primary(self) -> str:
        return self._query.get("master_name", "mymaster")

    @property
    def _of_sentinels(self) -> dict[str, Any]:
        password = self._query.get("sentinel_password")
        return {"socket_timeout": 1.0} | ({"password": password} if password else {})

    @cached_property
    def _valkey(self) -> redis.Redis:
        first = urlsplit(self.celery_url.partition(";")[0])
        connect: Any = Sentinel
        sentinel = connect(
            self._hosts,
            sentinel_kwargs=self._of_sentinels,
            username=first.username,
            password=first.password,
            db=int(self._database),
            socket_timeout=SOCKET_SECONDS,
            socket_connect_timeout=1.0,
        )
        client: redis.Redis = sentinel.master_for(self._primary)
        return client


class RabbitBroker(Broker):
    """RabbitMQ, where each queue is a bounded quorum queue, in a vhost that no other service uses."""

    cooldown_seconds = 3.0
    _lost: tuple[type[Exception], ...] = (OperationalError, *amqp_transport.Transport.connection_errors)

    def __init__(self, url: str) -> None:
        """Register the transport; connects on first use."""
        super().__init__(url)
        amqp_transport.register_transport()
        self._lock = threading.Lock()
        self._connection: Connection | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """Add settings that turn off features of workers that quorum queues do not support."""
        return super().settings | {
            "broker_heartbeat": HEARTBEAT_SECONDS,
            "broker_connection_timeout": CONNECT_SECONDS,
            "task_default_exchange": EXCHANGE.name,
            "task_default_queue_type": "quorum",
        }

    @property
    def options(self) -> dict[str, Any]:
        """Options of py-amqp's connection."""
        return {"confirm_publish": True, "read_timeout": SOCKET_SECONDS, "write_timeout": SOCKET_SECONDS}

    def queue(self, name: str) -> Queue:
        """Return a queue. A full one drops its oldest job message, but rejects a new model call."""
        is_for_calls = name.startswith(CALL_QUEUES)
        arguments = {
            "x-queue-type": "quorum",
            "x-max-length": CALLS_LIMIT if is_for_calls else JOB_MESSAGES_LIMIT,
            # A dropped job message costs one sweep interval. A dropped call would cost its client the whole timeout.
            "x-overflow": "reject-publish" if is_for_calls else "drop-head",
            # A message that kills its worker each time is dropped after so many deliveries.
            "x-delivery-limit": DELIVERY_LIMIT,
            "x-consumer-timeout": CONSUMER_TIMEOUT_SECONDS * 1000,
        }
        return Queue(name, exchange=EXCHANGE, routing_key=name, queue_arguments=arguments)

    def depth(self, queue: str) -> int:
        """Return the number of ready messages; 0 if the queue has not been declared yet."""
        with self._lock:
            try:
                return self._ask(queue)
            except self._lost:
                self._forget()
            try:  # try once more, because the connection may have been stale
                return self._ask(queue)
            except self._lost as error:
                self._forget()
                raise ServiceUnavailable(f"the broker does not answer: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._forget()

    def _ask(self, queue: str) -> int:
        if self._connection is None:
            self._connection = Connection(
                self.url, connect_timeout=CONNECT_SECONDS, transport_options=dict(self.options)
            )
            self._connection.ensure_connection(max_retries=1, interval_start=0)
        channel: Any = self._connection.channel()
        with closing(channel):
            try:
                return int(channel.queue_declare(queue, passive=True).message_count)
            # Not declared yet: no process has published to it or consumed from it.
            except NotFound:
                return 0

    # Caller holds the lock.
    def _forget(self) -> None:
        if self._connection is not None:
            self._connection.collect()
            self._connection = None


EXCHANGE = Exchange("quartermaster", type="direct")

_KINDS: dict[str, type[Broker]] = {
    **dict.fromkeys(VALKEY_SCHEMES, ValkeyBroker),
    **dict.fromkeys(SENTINEL_SCHEMES, SentinelBroker),
    **dict.fromkeys(RABBITMQ_SCHEMES, RabbitBroker),
}


def _credentials(address: SplitResult) -> str:
    return address.netloc.rpartition("@")[0] + "@" if "@" in address.netloc else ""
