"""Carry replies from workers back to the front that waits for them: one Valkey stream per web process.

One thread of the process reads its stream and hands each reply to the request that waits for it, because a blocking
read per request costs five times the processor. A worker writes only while that stream exists: a front that died
lets its stream expire, and the worker learns with its next reply that nobody listens.

Replies may be lost (Valkey may forget everything at any moment) but never silently: they are numbered, and a waiting
request is told of a gap. What must survive is in Postgres; a reply is only the way to whoever is still there.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

import redis

from shared.telemetry import get_logger

log = get_logger(__name__)

STREAM_SECONDS = 15
RENEWAL_SECONDS = 3.0
BLOCK_MILLISECONDS = 1000
READ_COUNT = 512
STREAM_LIMIT = 100_000
INBOX_LIMIT_BYTES = 8 << 20
CANCEL_SECONDS = 900
_RETRY_SECONDS = 0.2


class ReplyKind(StrEnum):
    """What a reply says."""

    ALIVE = "alive"
    DATA = "data"
    END = "end"
    FAILED = "failed"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One reply; `data` is for the front to send on or to read, as the two sides agree."""

    kind: ReplyKind
    data: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyAddress:
    """Where a worker sends the replies of one invocation."""

    stream: str
    invocation_id: UUID


class Inbox:
    """The replies to one request, in order; close it when nobody waits any more."""

    def __init__(self, stream: ReplyStream, address: ReplyAddress) -> None:
        """Made by `ReplyStream.open`."""
        self.address = address
        self._stream = stream
        self._replies: queue.SimpleQueue[Reply] = queue.SimpleQueue()
        self._expected = 0
        # Two counters, each written by one thread: their difference is what waits.
        self._delivered_bytes = 0
        self._received_bytes = 0
        self._is_lost = False

    def receive(self, timeout_seconds: float) -> Reply | None:
        """Wait for the next reply; None when there is none in time. After a LOST one there are no more."""
        try:
            reply = self._replies.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        self._received_bytes += len(reply.data)
        return reply

    def close(self) -> None:
        """Stop listening."""
        self._stream.forget(self.address.invocation_id)

    def __enter__(self) -> Inbox:
        """Listen within a block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop listening."""
        self.close()

    def deliver(self, number: int, reply: Reply) -> None:
        """Take a reply from the stream's reader; a gap, or a request too slow to take its replies, loses the rest."""
        if self._is_lost:
            return
        if number != self._expected or self._delivered_bytes - self._received_bytes > INBOX_LIMIT_BYTES:
            self.lose()
            return
        self._expected += 1
        self._delivered_bytes += len(reply.data)
        self._replies.put(reply)

    def lose(self) -> None:
        """Tell the waiting request that replies are missing."""
        self._is_lost = True
        self._replies.put(Reply(kind=ReplyKind.LOST))


class ReplyStream:
    """The front's end: the stream of this process, and its reader."""

    def __init__(self, valkey: redis.Redis) -> None:
        """Prepare; the thread and the stream begin with the first request, in the process that makes it."""
        self._valkey = valkey
        self._name = f"quartermaster:replies:{uuid4().hex}"
        self._inboxes: dict[bytes, Inbox] = {}
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None
        self._is_closing = threading.Event()

    def close(self) -> None:
        """Read no more; the stream expires by itself."""
        self._is_closing.set()

    def open(self, invocation_id: UUID) -> Inbox:
        """Listen for the replies of an invocation; do so before its job is sent. Raises redis.RedisError."""
        inbox = Inbox(self, ReplyAddress(stream=self._name, invocation_id=invocation_id))
        with self._lock:
            if self._reader is None:
                self._create()
                self._reader = threading.Thread(target=self._run, name="reply-reader", daemon=True)
                self._reader.start()
            self._inboxes[invocation_id.bytes] = inbox
        return inbox

    def forget(self, invocation_id: UUID) -> None:
        """Drop what still arrives for an invocation."""
        self._inboxes.pop(invocation_id.bytes, None)

    @property
    def waiting(self) -> int:
        """How many requests wait for replies."""
        return len(self._inboxes)

    def _run(self) -> None:
        cursor = b"0-0"
        renewed_at = time.monotonic()
        while not self._is_closing.is_set():
            try:
                if time.monotonic() - renewed_at > RENEWAL_SECONDS:
                    cursor = self._renew(cursor)
                    renewed_at = time.monotonic()
                cursor = self._read(cursor)
            except redis.RedisError as error:
                log.warning("replies.interrupted", error=str(error))
                self._is_closing.wait(_RETRY_SECONDS)
                renewed_at = 0.0
            except Exception:  # without its reader this process would hear no reply ever again
                log.exception("replies.misread")
                self._is_closing.wait(_RETRY_SECONDS)

    def _read(self, cursor: bytes) -> bytes:
        answer: Any = self._valkey.xread({self._name: cursor}, count=READ_COUNT, block=BLOCK_MILLISECONDS)
        streams = answer.items() if isinstance(answer, dict) else answer or ()
        for _, entries in streams:
            for entry in _flattened(entries):
                cursor = entry[0]
                self._deliver(entry[1])
        return cursor

    def _deliver(self, fields: Mapping[bytes, bytes]) -> None:
        inbox = self._inboxes.get(fields.get(b"i", b""))
        if inbox is not None:
            inbox.deliver(
                int(fields[b"n"]), Reply(kind=ReplyKind(fields[b"k"].decode()), data=fields.get(b"d", b""))
            )

    def _renew(self, cursor: bytes) -> bytes:
        """Keep the stream for another while and drop what was read; make it again if Valkey has forgotten it."""
        if self._valkey.expire(self._name, STREAM_SECONDS):
            # Past the last one read as well: replies are not kept for as long as nothing follows them.
            self._valkey.xtrim(self._name, minid=_following(cursor), approximate=True)
            return cursor
        self._create()
        for inbox in list(self._inboxes.values()):
            inbox.lose()
        return b"0-0"

    def _create(self) -> None:
        self._valkey.xadd(self._name, {"k": ReplyKind.ALIVE.value})
        self._valkey.expire(self._name, STREAM_SECONDS)


class ReplyWriter:
    """A worker's end: sends the replies of one invocation, numbered."""

    def __init__(self, valkey: redis.Redis, address: ReplyAddress) -> None:
        """Prepare to reply."""
        self._valkey = valkey
        self._address = address
        self._sent = 0
        self._lock = threading.Lock()

    def send(self, kind: ReplyKind, data: bytes = b"") -> bool:
        """Send a reply; False when nobody listens any more. Raises redis.RedisError."""
        with self._lock:
            fields: dict[Any, Any] = {
                "i": self._address.invocation_id.bytes,
                "n": self._sent,
                "k": kind.value,
                "d": data,
            }
            added = self._valkey.xadd(
                self._address.stream, fields, nomkstream=True, maxlen=STREAM_LIMIT, approximate=True
            )
            self._sent += 1
        return added is not None


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


def _following(cursor: bytes) -> bytes:
    """Give the least id of an entry after this one."""
    milliseconds, _, number = cursor.partition(b"-")
    return b"%b-%d" % (milliseconds, int(number) + 1)


def _flattened(entries: Any) -> Any:
    """Read a stream's entries in either of the two forms in which redis-py gives them."""
    return entries[0] if entries and isinstance(entries[0], list) else entries
