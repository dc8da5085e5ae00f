"""Read the messages of model calls directly from the broker's lists, without a worker."""

from typing import Any

import redis

from shared.messaging.queues import MODELS
from shared.models.queue.call_queue import QueuedCall, key_of, parked_queue, read_entry
from shared.models.queue.rabbitmq_calls import WAITING

KEYS = tuple(map(key_of, MODELS))


def waiting_calls(broker: redis.Redis) -> list[QueuedCall]:
    """Return all pending calls, without the deferred ones."""
    entries: list[Any] = [entry for key in KEYS for entry in broker.lrange(key, 0, -1)]
    return list(map(read_entry, entries))


def take_call(broker: redis.Redis) -> QueuedCall | None:
    """Take a call as a worker does, or return None."""
    taken: Any = next((entry for key in KEYS if (entry := broker.rpop(key)) is not None), None)
    return read_entry(taken) if taken is not None else None


def count_aside(broker: redis.Redis, provider: str) -> int:
    """Return the number of calls that are deferred because a provider is at its limit."""
    return int(broker.llen(key_of(parked_queue(provider))))


def forget_calls(broker: redis.Redis) -> None:
    """Delete all calls, pending and deferred, and their requests."""
    broker.delete(
        *KEYS,
        WAITING,
        *broker.scan_iter(key_of(parked_queue("*"))),
        *broker.scan_iter("quartermaster:request:*"),
    )
