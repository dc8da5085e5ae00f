"""Model calls over a broker that is not their Valkey: the messages go by RabbitMQ, their requests stay in Valkey.

A message is acknowledged when its call begins: a call that has begun is never made again, even if its worker dies.
Which calls wait is remembered beside their requests, for their number and age. A call whose queues are empty was lost,
and its front sends it again; one too many does no harm, because the row says who may make a call.
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
"""The calls that wait for a worker, by the moment they were put."""


class CallNotTaken(redis.RedisError):
    """The broker takes or gives no call now; to those who use a queue of calls, what a Valkey that is away is."""


class BrokeredCallQueue(CallQueue):
    """The calls that wait, where their messages go by a broker of their own."""

    def __init__(self, valkey: redis.Redis, broker: Broker) -> None:
        """Suppose that there is room until the first call is put."""
        super().__init__(valkey)
        self._messages = BrokerMessages(broker)
        self._waiting: int | None = 0

    def is_full(self, limit: int) -> bool:
        """Tell whether so many calls wait; asked of Valkey only if there were many, or one failed, at the last."""
        return (self._waiting is None or self._waiting >= limit) and self.count() >= limit

    def count(self) -> int:
        """Count the calls that wait."""
        *_, number = ask_together(self._valkey, self._forget_old(), ("ZCARD", WAITING))
        return int(number)

    def oldest_seconds(self) -> float:
        """Tell how long the call has waited that waits longest; 0 where none waits."""
        *_, oldest = ask_together(self._valkey, self._forget_old(), ("ZRANGE", WAITING, "0", "0"))
        return max(0.0, time.time() - made_at(UUID(oldest[0].decode()))) if oldest else 0.0

    def put(self, address: ReplyAddress, request: AcceptedRequest, *, organization_id: UUID) -> None:
        """Let a call wait for a worker."""
        invocation_id, provider = address.invocation_id, request.entry.upstreams[0].provider.name
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
        """Let a call wait again if nothing waits where it would: a worker took it and died before it began."""
        with _translated_errors():
            broker = self._messages.broker
            if broker.depth(call.queue) or broker.depth(parked_queue(call.provider)):
                return False
        self.requeue(call)
        return True

    def requeue(self, call: QueuedCall) -> None:
        """Let a call wait, as the last of its queue."""
        self._send(call.queue, call)

    def park(self, call: QueuedCall) -> None:
        """Let a call wait for room at its provider."""
        self._send(parked_queue(call.provider), call)

    def take_parked(self, provider: str) -> QueuedCall | None:
        """Take the call that has waited longest for this provider; None when there is none."""
        with _translated_errors():
            taken = self._messages.take(parked_queue(provider))
        return None if taken is None else read_message(taken.headers, taken.body, taken.delivery_info)

    def take_request(self, invocation_id: UUID) -> AcceptedRequest | None:
        """Take a call's request out; None when nobody waits for the call, or its time is over."""
        self._valkey.zrem(WAITING, invocation_id.hex)
        return super().take_request(invocation_id)

    def drop_requests(self, *invocation_ids: UUID) -> None:
        """Forget the requests of calls that no worker will make."""
        self._valkey.zrem(WAITING, *(invocation_id.hex for invocation_id in invocation_ids))
        super().drop_requests(*invocation_ids)

    def _send(self, queue: str, call: QueuedCall) -> None:
        parts = message_parts(call)
        with _translated_errors():
            self._messages.send(queue, parts["body"], parts["headers"])

    def _forget_old(self) -> tuple[str, ...]:
        # Another front put them, by its own clock.
        over = time.time() - KEPT_SECONDS - CLOCKS_APART_SECONDS
        return ("ZREMRANGEBYSCORE", WAITING, "-inf", str(over))


def open_call_queue(settings: Settings, valkey: redis.Redis) -> CallQueue:
    """Open the queue of calls, over the Valkey of their requests."""
    address = broker_of_calls(settings)
    if scheme_of(address) in RABBITMQ_SCHEMES:
        return BrokeredCallQueue(valkey, Broker.of(address))
    return CallQueue(valkey)


def broker_of_calls(settings: Settings) -> str:
    """Give the address by which calls' messages travel: RabbitMQ, or the Valkey where their requests are."""
    if scheme_of(settings.broker) in RABBITMQ_SCHEMES:
        return settings.broker
    return settings.models_redis_url or settings.redis_url


@contextmanager
def _translated_errors() -> Iterator[None]:
    try:
        yield
    except ServiceUnavailable as error:
        raise CallNotTaken(error.detail) from error
