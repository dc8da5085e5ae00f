"""Queued model calls with messages on RabbitMQ. The requests stay in Valkey.

A worker acknowledges a message when the message's call begins, because a call that has begun must never be made again,
even if the worker dies. A sorted set in Valkey records the queued calls, to count them and to find the age of the
oldest. If the two queues in which a call may wait are empty, the call was lost, and the web process sends the call
again. A duplicate is harmless, because the row in Postgres decides which worker may make a call.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

import redis

from shared.config.broker_urls import RABBITMQ_SCHEMES, scheme_of
from shared.config.settings import Settings
from shared.errors import ServiceUnavailable
from shared.ids import made_at
from shared.messaging.broker import Broker
from shared.messaging.direct_messages import BrokerMessages
from shared.messaging.replies import ReplyAddress
from shared.messaging.valkey import ask_together
from shared.models.queue.call_queue import (
    KEPT_SECONDS,
    AcceptedRequest,
    CallQueue,
    QueuedCall,
    message_parts,
    parked_queue,
    queue_of,
    read_message,
    write_request,
)
from shared.runtime.clock_skew import CLOCKS_APART_SECONDS

WAITING = "quartermaster:waiting-calls"
"""The queued calls by the time of their `put`."""


class CallNotTaken(redis.RedisError):
    """RabbitMQ is unavailable. A subclass of RedisError, so that callers handle it like an unavailable Valkey."""


class BrokeredCallQueue(CallQueue):
    """The queued calls, with messages on RabbitMQ."""

    def __init__(self, valkey: redis.Redis, broker: Broker) -> None:
        """Create a queue that is assumed to have room until the first `put`."""
        super().__init__(valkey)
        self._messages = BrokerMessages(broker)
        self._waiting: int | None = 0

    def is_full(self, limit: int) -> bool:
        """Return whether at least `limit` calls are queued.

        Queries Valkey only if at least `limit` calls were queued at the last `put`, or if the last `put` failed.
        """
        return (self._waiting is None or self._waiting >= limit) and self.count() >= limit

    def count(self) -> int:
        """Return the number of queued calls."""
        *_, number = ask_together(self._valkey, self._forget_old(), ("ZCARD", WAITING))
        return int(number)

    def oldest_seconds(self) -> float:
        """Return the age of the oldest queued call in seconds; 0 if no call is queued."""
        *_, oldest = ask_together(self._valkey, self._forget_old(), ("ZRANGE", WAITING, "0", "0"))
        return max(0.0, time.time() - made_at(UUID(oldest[0].decode()))) if oldest else 0.0

    def put(self, address: ReplyAddress, request: AcceptedRequest, *, organization_id: UUID) -> None:
        """Queue a call for a worker."""
        invocation_id, provider = address.invocation_id, request.entry.upstreams[0].provider.name
        # The number is unknown until both servers have the call. If one fails, the next `is_full` must count.
        self._waiting = None
        *_, waiting = ask_together(
            self._valkey,
            write_request(invocation_id, request),
            ("ZADD", WAITING, str(time.time()), invocation_id.hex),
            self._forget_old(),
            ("ZCARD", WAITING),
        )
        self.requeue(
            QueuedCall(address=address, provider=provider, queue=queue_of(provider, organization_id))
        )
        self._waiting = int(waiting)

    def requeue_if_lost(self, call: QueuedCall) -> bool:
        """Queue a call again if both queues in which it may wait are empty. Return whether they were.

        In that case a worker took the call's message and died before the call began.
        """
        with _translated_errors():
            broker = self._messages.broker
            if broker.depth(call.queue) or broker.depth(parked_queue(call.provider)):
                return False
        self.requeue(call)
        return True

    def requeue(self, call: QueuedCall) -> None:
        """Append a call to its queue: RabbitMQ cannot insert at the head."""
        self._send(call.queue, call)

    def park(self, call: QueuedCall) -> None:
        """Queue a call until its provider has room."""
        self._send(parked_queue(call.provider), call)

    def take_parked(self, provider: str) -> QueuedCall | None:
        """Pop the call that has waited longest for this provider. Return None if there is none."""
        with _translated_errors():
            taken = self._messages.take(parked_queue(provider))
        return None if taken is None else read_message(taken.headers, taken.body, taken.delivery_info)

    def take_request(self, invocation_id: UUID) -> AcceptedRequest | None:
        """Pop a call's request. Return None if it was withdrawn or has expired."""
        self._valkey.zrem(WAITING, invocation_id.hex)
        return super().take_request(invocation_id)

    def drop_requests(self, *invocation_ids: UUID) -> None:
        """Delete the requests of calls that no worker will make."""
        self._valkey.zrem(WAITING, *(invocation_id.hex for invocation_id in invocation_ids))
        super().drop_requests(*invocation_ids)

    def _send(self, queue: str, call: QueuedCall) -> None:
        parts = message_parts(call)
        with _translated_errors():
            self._messages.send(queue, parts["body"], parts["headers"])

    def _forget_old(self) -> tuple[str, ...]:
        # Allow for the clocks' maximum difference: other web processes write entries by their own clocks.
        over = time.time() - KEPT_SECONDS - CLOCKS_APART_SECONDS
        return ("ZREMRANGEBYSCORE", WAITING, "-inf", str(over))


def open_call_queue(settings: Settings, valkey: redis.Redis) -> CallQueue:
    """Return the queue of calls for the configured broker; `valkey` stores the requests."""
    address = broker_of_calls(settings)
    if scheme_of(address) in RABBITMQ_SCHEMES:
        return BrokeredCallQueue(valkey, Broker.of(address))
    return CallQueue(valkey)


def broker_of_calls(settings: Settings) -> str:
    """Return the URL of the broker of model calls: RabbitMQ if configured, else the Valkey that stores the requests."""
    if scheme_of(settings.broker) in RABBITMQ_SCHEMES:
        return settings.broker
    return settings.models_redis_url or settings.redis_url


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except ServiceUnavailable as error:
        raise CallNotTaken(error.detail) from error
