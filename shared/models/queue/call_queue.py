"""Accepted calls on their way to a worker: Celery messages, and their requests beside them in Valkey for a while.

Sixteen queues, by a hash of provider and organization, are read in turn. A call without room at its provider is put
aside, in a queue of the provider: no thread waits for it. On Valkey messages are not acknowledged: the row says who may
make a call, and the front that waits sends a lost message again. A front that waits no longer marks its call as
cancelled; the worker looks for marks between chunks.

Prompts are never in Postgres, in a message or in a log. Beside each travels its catalog entry, because the worker may
have read another file.
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
    """A call as it waits: where its replies go, the provider that is asked first, and its queue."""

    address: ReplyAddress
    provider: str
    queue: str


def queue_of(provider: str, organization_id: UUID) -> str:
    """Name the queue of an organization's calls to a provider."""
    return MODELS[zlib.crc32(f"{provider}/{organization_id}".encode()) % len(MODELS)]


def parked_queue(provider: str) -> str:
    """Name the queue of a provider's calls that were put aside."""
    return MODELS_ASIDE + provider


def key_of(queue: str) -> str:
    """Name the list in Valkey that is a queue; the next message is its last entry."""
    return KEY_PREFIX + queue


def message_parts(call: QueuedCall) -> dict[str, Any]:
    """Give the parts of a call's message."""
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
    """Write a call as an entry of a queue in Valkey."""
    return _ENCODE(message_parts(call))


def read_message(headers: dict[str, Any], body: str | bytes, delivery_info: dict[str, Any]) -> QueuedCall:
    """Read a call's message. Raises KeyError, TypeError or ValueError for what is none."""
    _, fields, _ = json.loads(body)
    address = ReplyAddress(invocation_id=UUID(headers["id"]), channel=str(fields["channel"]))
    return QueuedCall(
        address=address, provider=str(fields["provider"]), queue=str(delivery_info["routing_key"])
    )


def read_entry(entry: bytes) -> QueuedCall:
    """Read an entry of a queue. Raises KeyError, TypeError or ValueError for what is none."""
    message = json.loads(entry)
    return read_message(message["headers"], message["body"], message["properties"]["delivery_info"])


KEPT_SECONDS = 60
"""Longer than the lease of a hold, after which nobody may make the call."""
_REMEMBERED_ENTRIES = 4096
_ENTRY = TypeAdapter(ModelEntry)
_KEYS = tuple(map(key_of, MODELS))


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptedRequest:
    """A request whose credits are held, and its model as the catalog had it then.

    `created`, in Unix seconds, is what the reply will say of itself.
    """

    entry: ModelEntry
    dialect: Dialect
    is_stream: bool
    created: int
    body: dict[str, Any]
    traceparent: str | None = None
    """The trace of the request that it came by."""

    def parsed(self) -> ParsedRequest:
        """Tell the facts of the body again; the front has validated it."""
        return describe(self.dialect, self.body, is_stream=self.is_stream)


class CallQueue:
    """The calls that wait, as front and worker see them; a method is one round trip unless it says more.

    All raise redis.RedisError.
    """

    def __init__(self, valkey: redis.Redis) -> None:
        """Suppose that there is room until the first call is put."""
        self._valkey = valkey
        self._in_last_queue: int | None = 0

    def is_full(self, limit: int) -> bool:
        """Tell whether so many calls wait; asked of Valkey only if a queue was long, or failed, when it was put to."""
        last = self._in_last_queue
        return (last is None or last * len(_KEYS) >= limit) and self.count() >= limit

    def count(self) -> int:
        """Count the calls that wait, without those put aside."""
        return sum(ask_together(self._valkey, *(("LLEN", key) for key in _KEYS)))

    def oldest_seconds(self) -> float:
        """Tell how long the call has waited that is next of all, by its id; 0 where none waits."""
        entries = ask_together(self._valkey, *(("LINDEX", key, -1) for key in _KEYS))
        made = [made_at(read_entry(entry).address.invocation_id) for entry in entries if entry is not None]
        return max(0.0, time.time() - min(made)) if made else 0.0

    def put(self, address: ReplyAddress, request: AcceptedRequest, *, organization_id: UUID) -> None:
        """Let a call wait for a worker."""
        provider = request.entry.upstreams[0].provider.name
        call = QueuedCall(address=address, provider=provider, queue=queue_of(provider, organization_id))
        try:
            _, self._in_last_queue = ask_together(
                self._valkey,
                write_request(address.invocation_id, request),
                ("LPUSH", key_of(call.queue), write_message(call)),
            )
        except redis.RedisError:
            self._in_last_queue = None
            raise

    def requeue_if_lost(self, call: QueuedCall) -> bool:
        """Let a call wait again, as the next, if it waits nowhere: a worker took it and died before it began.

        For a worker that is merely slow to begin this does no harm: the row says who may make the call.
        """
        key, entry = key_of(call.queue), write_message(call)
        aside = key_of(parked_queue(call.provider))
        if ask_together(self._valkey, ("LPOS", key, entry), ("LPOS", aside, entry)) != [None, None]:
            return False
        self.requeue(call)
        return True

    def requeue(self, call: QueuedCall) -> None:
        """Let a call wait again, as the next of its queue."""
        self._valkey.rpush(key_of(call.queue), write_message(call))

    def park(self, call: QueuedCall) -> None:
        """Let a call wait for room at its provider."""
        self._valkey.lpush(key_of(parked_queue(call.provider)), write_message(call))

    def take_parked(self, provider: str) -> QueuedCall | None:
        """Take the call that has waited longest for this provider; None when there is none."""
        taken: Any = self._valkey.rpop(key_of(parked_queue(provider)))
        return read_entry(taken) if taken is not None else None

    def take_request(self, invocation_id: UUID) -> AcceptedRequest | None:
        """Take a call's request out; None when nobody waits for the call, or its time is over."""
        stored: Any = self._valkey.getdel(_request_key(invocation_id))
        if stored is None:
            return None
        return read_request(stored)

    def drop_requests(self, *invocation_ids: UUID) -> None:
        """Forget the requests of calls that no worker will make."""
        self._valkey.delete(*map(_request_key, invocation_ids))

    def withdraw(self, *invocation_ids: UUID) -> None:
        """Cancel calls, begun or not, because nobody waits for them any more; two round trips for all of them."""
        # Marked first: a worker that finds no request looks whether the call was cancelled.
        cancel(self._valkey, *invocation_ids)
        self.drop_requests(*invocation_ids)


def write_request(invocation_id: UUID, request: AcceptedRequest) -> tuple[Any, ...]:
    """Give the command that keeps a call's request for a while."""
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
    """Read a call's request; what a front of the next release adds is left out."""
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
    """Write an entry, without what is for readers of the catalog, and for the front, alone."""
    return _ENTRY.dump_json(replace(entry, name="", description="", supported_endpoints=())).decode()


@lru_cache(maxsize=_REMEMBERED_ENTRIES)
def _read_entry(text: str) -> ModelEntry:
    """Read an entry; raises ValueError for anything else.

    A front of the release before knows fewer prices, one of the next release more: what either names and the other
    does not costs as in its hold.
    """
    values = json.loads(text)
    values["prices"] = asdict(Prices.complete(values["prices"]))
    return _ENTRY.validate_python(values)


CANCEL_SECONDS = 900


def cancel(valkey: redis.Redis, *invocation_ids: UUID) -> None:
    """Tell the workers, in one round trip, that nobody waits for these any more. Raises redis.RedisError."""
    marks = (("SET", _cancel_key(at), b"1", "EX", CANCEL_SECONDS) for at in invocation_ids)
    ask_together(valkey, *marks)


def is_cancelled(valkey: redis.Redis, invocation_id: UUID) -> bool:
    """Tell whether an invocation was cancelled. Raises redis.RedisError."""
    return bool(valkey.exists(_cancel_key(invocation_id)))


def find_cancelled(valkey: redis.Redis, invocation_ids: Sequence[UUID]) -> set[UUID]:
    """Tell which of these invocations were cancelled, in one round trip. Raises redis.RedisError."""
    marks: Any = valkey.mget([_cancel_key(invocation_id) for invocation_id in invocation_ids])
    return {invocation_id for invocation_id, mark in zip(invocation_ids, marks, strict=True) if mark}


def _cancel_key(invocation_id: UUID) -> str:
    return f"quartermaster:cancelled:{invocation_id.hex}"
