"""Accepted calls on their way to a worker: lists in Valkey, and their requests beside them, each with a time to live.

Sixteen lists, by a hash of provider and organization, are read in turn, so that a long one does not block the others.
A call whose provider has no room in the worker that took it is put aside, in a list of its provider. A front that
waits no longer marks its call as cancelled; the worker looks for marks between chunks.

The row in Postgres says who may make a call, so an entry may come twice, and a lost one is put again by the front
that waits. As Celery messages, calls cost a worker twice the processor of all their other work. Prompts are never in
Postgres, in the lists or in a log; they are dropped when nobody waits, and after a while. Beside each travels its
catalog entry, because the worker may have read another file.
"""

import itertools
import json
import random
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any
from uuid import UUID

import redis
from pydantic import TypeAdapter

from shared.credits.prices import Prices
from shared.models.catalog import ModelEntry
from shared.models.dialects import Dialect, ParsedRequest, describe
from shared.replies import ReplyAddress
from shared.valkey import ask_together

LISTS = 16
KEYS = tuple(f"quartermaster:model-calls:{number}" for number in range(LISTS))
ASIDE = "quartermaster:model-calls-aside"
"""A set of the providers of whom calls were put aside; with a provider's name behind it, the list of those calls."""
KEPT_SECONDS = 60
"""Longer than the lease of a hold, after which nobody may make the call."""
_ID_BYTES = 16
_REMEMBERED_ENTRIES = 4096
_ENTRY = TypeAdapter(ModelEntry)
_SEPARATOR = b"\0"
_FORGET_IF_EMPTY = """
if redis.call('EXISTS', KEYS[2]) == 0 then redis.call('SREM', KEYS[1], ARGV[1]) end
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedCall:
    """A call as it waits: where its replies go, and the provider that is asked first."""

    address: ReplyAddress
    provider: str


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

    def parsed(self) -> ParsedRequest:
        """Tell the facts of the body again; the front has validated it."""
        return describe(self.dialect, self.body, is_stream=self.is_stream)


class CallQueue:
    """The calls that wait, as front and worker see them; nearly every method is one round trip.

    All raise redis.RedisError.
    """

    def __init__(self, valkey: redis.Redis) -> None:
        """Suppose that there is room until the first call is put."""
        self._valkey = valkey
        self._forget_if_empty: Any = valkey.register_script(_FORGET_IF_EMPTY)
        self._in_last_list: int | None = 0
        self._next_list = itertools.count(random.randrange(LISTS))  # noqa: S311 (workers begin differently)

    def is_full(self, limit: int) -> bool:
        """Tell whether so many calls wait; asked of Valkey only if a list was long, or failed, when it was put to."""
        last = self._in_last_list
        return (last is None or last * LISTS >= limit) and self.count() >= limit

    def count(self) -> int:
        """Count the calls that wait, without those put aside."""
        return sum(ask_together(self._valkey, *(("LLEN", key) for key in KEYS)))

    def put(self, address: ReplyAddress, request: AcceptedRequest, *, organization_id: UUID) -> None:
        """Let a call wait for a worker."""
        values = {
            "entry": _write_entry(request.entry),
            "dialect": request.dialect.value,
            "is_stream": request.is_stream,
            "created": request.created,
            "body": request.body,
        }
        content = json.dumps(values, separators=(",", ":"))
        provider = request.entry.upstreams[0].provider.name
        key = KEYS[_list_of(provider, organization_id)]
        entry = _written(QueuedCall(address=address, provider=provider))
        try:
            _, self._in_last_list = ask_together(
                self._valkey,
                ("SET", _request_key(address.invocation_id), content, "EX", KEPT_SECONDS),
                ("RPUSH", key, entry),
            )
        except redis.RedisError:
            self._in_last_list = None
            raise

    def return_if_lost(self, call: QueuedCall, *, organization_id: UUID) -> bool:
        """Let a call wait again, as the next, if it waits nowhere: a worker took it and died before it began.

        For a worker that is merely slow to begin this does no harm: the row says who may make the call.
        """
        key, entry = KEYS[_list_of(call.provider, organization_id)], _written(call)
        places = ask_together(self._valkey, ("LPOS", key, entry), ("LPOS", _aside_key(call.provider), entry))
        if places != [None, None]:
            return False
        self._valkey.lpush(key, entry)
        return True

    def take(self, *, patience_seconds: float, put_aside: Sequence[str] = ()) -> QueuedCall | None:
        """Take a call of the next list that has one, before them one put aside of these providers; None for none."""
        first = next(self._next_list) % LISTS
        keys = [*map(_aside_key, put_aside), *KEYS[first:], *KEYS[:first]]
        taken: Any = self._valkey.blpop(keys, timeout=patience_seconds)
        return _read(taken[1]) if taken is not None else None

    def put_aside(self, call: QueuedCall) -> None:
        """Let a call wait for room at its provider."""
        ask_together(
            self._valkey,
            ("RPUSH", _aside_key(call.provider), _written(call)),
            ("SADD", ASIDE, call.provider),
        )

    def take_put_aside(self, provider: str) -> QueuedCall | None:
        """Take the call that has waited longest for this provider; None when there is none."""
        taken: Any = self._valkey.lpop(_aside_key(provider))
        if taken is None:
            self._forget_if_empty(keys=[ASIDE, _aside_key(provider)], args=[provider])
            return None
        return _read(taken)

    def providers_put_aside(self) -> list[str]:
        """List the providers of whom calls were put aside, by any worker."""
        members: Any = self._valkey.smembers(ASIDE)
        return sorted(member.decode() for member in members)

    def take_request(self, invocation_id: UUID) -> AcceptedRequest | None:
        """Take a call's request out; None when nobody waits for the call, or its time is over."""
        stored: Any = self._valkey.getdel(_request_key(invocation_id))
        if stored is None:
            return None
        values = json.loads(stored)
        return AcceptedRequest(
            **{**values, "entry": _read_entry(values["entry"]), "dialect": Dialect(values["dialect"])}
        )

    def drop_request(self, invocation_id: UUID) -> None:
        """Forget the request of a call that no worker will make."""
        self._valkey.delete(_request_key(invocation_id))

    def withdraw(self, invocation_id: UUID) -> None:
        """Cancel a call, begun or not, because nobody waits for it any more."""
        self.drop_request(invocation_id)
        cancel(self._valkey, invocation_id)


def _request_key(invocation_id: UUID) -> str:
    return f"quartermaster:request:{invocation_id.hex}"


def _aside_key(provider: str) -> str:
    return f"{ASIDE}:{provider}"


def _list_of(provider: str, organization_id: UUID) -> int:
    return zlib.crc32(f"{provider}/{organization_id}".encode()) % LISTS


def _written(call: QueuedCall) -> bytes:
    address = call.address
    return address.invocation_id.bytes + address.channel.encode() + _SEPARATOR + call.provider.encode()


def _read(entry: bytes) -> QueuedCall:
    channel, _, provider = entry[_ID_BYTES:].partition(_SEPARATOR)
    address = ReplyAddress(invocation_id=UUID(bytes=entry[:_ID_BYTES]), channel=channel.decode())
    return QueuedCall(address=address, provider=provider.decode())


@lru_cache(maxsize=_REMEMBERED_ENTRIES)
def _write_entry(entry: ModelEntry) -> str:
    """Write an entry, without what is for readers of the catalog, and for the front, alone."""
    return _ENTRY.dump_json(replace(entry, name="", description="", supported_endpoints=())).decode()


@lru_cache(maxsize=_REMEMBERED_ENTRIES)
def _read_entry(text: str) -> ModelEntry:
    """Read an entry; raises ValueError for anything else.

    A front of the previous release knows fewer prices: what it does not name costs as in its hold.
    """
    values = json.loads(text)
    values["prices"] = asdict(Prices.complete(values["prices"]))
    return _ENTRY.validate_python(values)


CANCEL_SECONDS = 900


def cancel(valkey: redis.Redis, invocation_id: UUID) -> None:
    """Tell the worker that nobody waits for this invocation any more. Raises redis.RedisError."""
    valkey.set(_cancel_key(invocation_id), b"1", ex=CANCEL_SECONDS)


def is_cancelled(valkey: redis.Redis, invocation_id: UUID) -> bool:
    """Tell whether an invocation was cancelled. Raises redis.RedisError."""
    return bool(valkey.exists(_cancel_key(invocation_id)))


def find_cancelled(valkey: redis.Redis, invocation_ids: Sequence[UUID]) -> set[UUID]:
    """Tell which of these invocations were cancelled, in one round trip. Raises redis.RedisError."""
    marks: Any = valkey.mget([_cancel_key(invocation_id) for invocation_id in invocation_ids])
    return {invocation_id for invocation_id, mark in zip(invocation_ids, marks, strict=True) if mark}


def _cancel_key(invocation_id: UUID) -> str:
    return f"quartermaster:cancelled:{invocation_id.hex}"
