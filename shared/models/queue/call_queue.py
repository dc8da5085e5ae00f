"""Queued model calls in Valkey. Each call has a Celery message in a queue, and a request under a key that expires.

A hash of provider and organization selects one of sixteen queues; workers read the queues round robin. A call without
room at its provider is parked in a queue of that provider. Messages on Valkey are not acknowledged: the row in Postgres
decides which worker may make a call, and the waiting web process sends a lost message again. To cancel a call, the web
process sets a key in Valkey, which workers poll.

A message has the form that kombu stores for Celery's protocol 2, and equal calls have equal messages. The web process
writes a message directly, in one round trip with the request, because `send_task` would take as long as all other work
for the queue. A test compares the message with kombu's own. A release that changes the form of messages must also
rename the queues, so that no worker reads a form that it does not know.

Prompts are in no table, message or log. The catalog entry travels with the request, because the worker may have read
another version of the catalog file.
"""

import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import UUID

import redis
from pydantic import TypeAdapter

from shared.credits.prices import Prices
from shared.ids import made_at
from shared.messaging.broker import KEY_PREFIX
from shared.messaging.queues import MODELS, MODELS_ASIDE
from shared.messaging.replies import ReplyAddress
from shared.messaging.valkey import ask_together
from shared.models.catalog import ModelEntry
from shared.models.dialects import Dialect, ParsedRequest, describe

TASK = "models.invoke"
_ENCODE = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCall:
    """A queued call: the address of its replies, the first provider to call, and its queue."""

    address: ReplyAddress
    provider: str
    queue: str


def queue_of(provider: str, organization_id: UUID) -> str:
    """Return the queue of an organization's calls to a provider."""
    # Use CRC-32, because `hash` returns different values in different processes.
    return MODELS[zlib.crc32(f"{provider}/{organization_id}".encode()) % len(MODELS)]


def parked_queue(provider: str) -> str:
    """Return the queue of a provider's parked calls."""
    return MODELS_ASIDE + provider


def key_of(queue: str) -> str:
    """Return the key of the Valkey list that is a queue. Its last entry is the next message."""
    return KEY_PREFIX + queue


def message_parts(call: QueuedCall) -> dict[str, Any]:
    """Return a call's message, by the names of the fields that kombu stores."""
    task_id = str(call.address.invocation_id)
    fields = {"channel": call.address.channel, "provider": call.provider}
    return {
        "body": _ENCODE(((), fields, {})),
        "content-encoding": "utf-8",
        "content-type": "application/json",
        "headers": {
            "lang": "py",
            "task": TASK,
            "id": task_id,
            "root_id": task_id,
            "parent_id": None,
            "group": None,
            "retries": 0,
            "ignore_result": True,
        },
        "properties": {
            "correlation_id": task_id,
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": call.queue},
            "priority": 0,
            "delivery_tag": task_id,
        },
    }


def write_message(call: QueuedCall) -> str:
    """Serialize a call to an entry of a queue in Valkey."""
    return _ENCODE(message_parts(call))


def read_message(headers: dict[str, Any], body: str | bytes, delivery_info: dict[str, Any]) -> QueuedCall:
    """Parse a call's message. Raises KeyError, TypeError or ValueError if it is invalid."""
    _, fields, _ = json.loads(body)
    address = ReplyAddress(invocation_id=UUID(headers["id"]), channel=str(fields["channel"]))
    return QueuedCall(
        address=address, provider=str(fields["provider"]), queue=str(delivery_info["routing_key"])
    )


def read_entry(entry: bytes) -> QueuedCall:
    """Parse an entry of a queue in Valkey. Raises KeyError, TypeError or ValueError if it is invalid."""
    message = json.loads(entry)
    return read_message(message["headers"], message["body"], message["properties"]["delivery_info"])


KEPT_SECONDS = 60
"""How long a request is stored: longer than the lease of the call's hold. Without the lease, no worker may call."""
_REMEMBERED_ENTRIES = 4096
_ENTRY = TypeAdapter(ModelEntry)
_KEYS = tuple(map(key_of, MODELS))


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRequest:
    """A request with reserved credits, and its model's catalog entry at that time.

    `created`, in Unix seconds, becomes the reply's creation time.
    """

    entry: ModelEntry
    dialect: Dialect
    is_stream: bool
    created: int
    body: dict[str, Any]
    traceparent: str | None = None
    """The W3C trace context of the HTTP request that created the call."""

    def parsed(self) -> ParsedRequest:
        """Return the parsed request. The body is not validated again, because the web process has validated it."""
        return describe(self.dialect, self.body, is_stream=self.is_stream)


class CallQueue:
    """The queued calls, for web processes and workers.

    Each method makes at most one round trip to Valkey, unless its docstring says otherwise. All raise redis.RedisError.
    """

    def __init__(self, valkey: redis.Redis) -> None:
        """Create a queue that is assumed to have room until the first `put`."""
        self._valkey = valkey
        self._in_last_queue: int | None = 0

    def is_full(self, limit: int) -> bool:
        """Return whether at least `limit` calls are queued.

        Queries Valkey only if the queue of the last `put` was long, or if the last `put` failed.
        """
        last = self._in_last_queue
        # Calls spread evenly over the queues, so one queue's length estimates the total.
        return (last is None or last * len(_KEYS) >= limit) and self.count() >= limit

    def count(self) -> int:
        """Return the number of queued calls without the parked ones."""
        return sum(ask_together(self._valkey, *(("LLEN", key) for key in _KEYS)))

    def oldest_seconds(self) -> float:
        """Return the age in seconds of the oldest queued call, by the time in its id; 0 if no call is queued."""
        entries = ask_together(self._valkey, *(("LINDEX", key, -1) for key in _KEYS))
        made = [made_at(read_entry(entry).address.invocation_id) for entry in entries if entry is not None]
        return max(0.0, time.time() - min(made)) if made else 0.0

    def put(self, address: ReplyAddress, request: AcceptedRequest, *, organization_id: UUID) -> None:
        """Queue a call for a worker."""
        provider = request.entry.upstreams[0].provider.name
        call = QueuedCall(address=address, provider=provider, queue=queue_of(provider, organization_id))
        try:
            _, self._in_last_queue = ask_together(
                self._valkey,
                write_request(address.invocation_id, request),
                # Write the message after the request, so that a worker that reads the message finds the request.
                ("LPUSH", key_of(call.queue), write_message(call)),
            )
        except redis.RedisError:
            # The length is unknown, so the next `is_full` must count.
            self._in_last_queue = None
            raise

    def requeue_if_lost(self, call: QueuedCall) -> bool:
        """Insert a call that is in no queue at the head of its queue. Return whether the call was in no queue.

        A call is lost if a worker took its message and died before the call began. Requeueing the call of a slow worker
        is harmless, because the row in Postgres decides which worker may make the call. Makes two round trips at most.
        """
        key, entry = key_of(call.queue), write_message(call)
        aside = key_of(parked_queue(call.provider))
        if ask_together(self._valkey, ("LPOS", key, entry), ("LPOS", aside, entry)) != [None, None]:
            return False
        self.requeue(call)
        return True

    def requeue(self, call: QueuedCall) -> None:
        """Insert a call at the head of its queue."""
        self._valkey.rpush(key_of(call.queue), write_message(call))

    def park(self, call: QueuedCall) -> None:
        """Queue a call until its provider has room."""
        self._valkey.lpush(key_of(parked_queue(call.provider)), write_message(call))

    def take_parked(self, provider: str) -> QueuedCall | None:
        """Pop the call that has waited longest for this provider. Return None if there is none."""
        taken: Any = self._valkey.rpop(key_of(parked_queue(provider)))
        return read_entry(taken) if taken is not None else None

    def take_request(self, invocation_id: UUID) -> AcceptedRequest | None:
        """Pop a call's request. Return None if it was withdrawn or has expired."""
        stored: Any = self._valkey.getdel(_request_key(invocation_id))
        if stored is None:
            return None
        return read_request(stored)

    def drop_requests(self, *invocation_ids: UUID) -> None:
        """Delete the requests of calls that no worker will make."""
        self._valkey.delete(*map(_request_key, invocation_ids))

    def withdraw(self, *invocation_ids: UUID) -> None:
        """Cancel calls that no client waits for, whether a worker has begun them or not. Makes two round trips."""
        # Set the mark first: a worker that finds no request checks the mark to learn whether the call was cancelled.
        cancel(self._valkey, *invocation_ids)
        self.drop_requests(*invocation_ids)


def write_request(invocation_id: UUID, request: AcceptedRequest) -> tuple[Any, ...]:
    """Return the Valkey command that stores a call's request for `KEPT_SECONDS`."""
    values = {
        "entry": _write_entry(request.entry),
        "dialect": request.dialect.value,
        "is_stream": request.is_stream,
        "created": request.created,
        "body": request.body,
    }
    if request.traceparent is not None:
        values["traceparent"] = request.traceparent
    content = json.dumps(values, separators=(",", ":"))
    return ("SET", _request_key(invocation_id), content, "EX", KEPT_SECONDS)


def read_request(stored: bytes) -> AcceptedRequest:
    """Parse a call's request. Fields that a newer release added are ignored."""
    values = json.loads(stored)
    return AcceptedRequest(
        entry=_read_entry(values["entry"]),
        dialect=Dialect(values["dialect"]),
        is_stream=values["is_stream"],
        created=values["created"],
        body=values["body"],
        traceparent=values.get("traceparent"),
    )


def _request_key(invocation_id: UUID) -> str:
    return f"quartermaster:request:{invocation_id.hex}"


@lru_cache(maxsize=_REMEMBERED_ENTRIES)
def _write_entry(entry: ModelEntry) -> str:
    """Serialize a catalog entry without the fields that only the web process needs."""
    return _ENTRY.dump_json(replace(entry, name="", description="", supported_endpoints=())).decode()


@lru_cache(maxsize=_REMEMBERED_ENTRIES)
def _read_entry(text: str) -> ModelEntry:
    """Parse a catalog entry. Raises ValueError if it is invalid."""
    values = json.loads(text)
    # A web process of another release may not know all prices. Complete them by the rule by which the hold was priced.
    values["prices"] = asdict(Prices.complete(values["prices"]))
    return _ENTRY.validate_python(values)


CANCEL_SECONDS = 900


def cancel(valkey: redis.Redis, *invocation_ids: UUID) -> None:
    """Mark calls as cancelled for the workers, in one round trip. Raises redis.RedisError."""
    marks = (("SET", _cancel_key(at), b"1", "EX", CANCEL_SECONDS) for at in invocation_ids)
    ask_together(valkey, *marks)


def is_cancelled(valkey: redis.Redis, invocation_id: UUID) -> bool:
    """Return whether a call was cancelled. Raises redis.RedisError."""
    return bool(valkey.exists(_cancel_key(invocation_id)))


def find_cancelled(valkey: redis.Redis, invocation_ids: Sequence[UUID]) -> set[UUID]:
    """Return the ids of the cancelled calls among these ids, in one round trip. Raises redis.RedisError."""
    marks: Any = valkey.mget([_cancel_key(invocation_id) for invocation_id in invocation_ids])
    return {invocation_id for invocation_id, mark in zip(invocation_ids, marks, strict=True) if mark}


def _cancel_key(invocation_id: UUID) -> str:
    return f"quartermaster:cancelled:{invocation_id.hex}"
