"""Requests that are still arriving: their bytes and deadlines, and which to evict if memory or sockets run out.

This module touches no socket and never waits. The rule it protects: an arriving request costs memory and a
connection, never a thread. Client addresses share memory and connections (an IPv6 address counts as its /64
network). When memory or connections run out, the address that uses most loses first.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from shared.fairness.admission import anonymous_key

# Twice the length that nginx passes on. gunicorn checks its own, lower limits once the head is complete.
LONGEST_HEAD_BYTES = 64 << 10
SMALL_BODY_BYTES = 128 << 10
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
_ONLY_FOR_A_THREAD = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)
_CREDENTIAL = re.compile(rb"\r\nauthorization:[ \t]*([^\r]+)\r\n", re.IGNORECASE)
_BARE_LF = re.compile(rb"(?<!\r)\n")


class Stage(Enum):
    """How much of a request has arrived. OVERSIZED: the head has exceeded its limit of bytes."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    COMPLETE = auto()
    OVERSIZED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Timeouts for the stages of a request, and the maximum of bytes that all requests of a process may buffer."""

    head_seconds: float = 5.0
    small_body_seconds: float = 10.0
    gathered_bytes: int = 64 << 20
    queue_seconds: float = 5.0


class IncomingRequest:
    """The bytes of a connection's next request that have arrived so far."""

    __slots__ = ("_length", "address", "conn", "data", "deadline", "is_watched", "sender", "stage")

    def __init__(self, conn: Any, address: str) -> None:
        self.conn = conn
        self.address = anonymous_key(address).member
        self.data = bytearray()
        self.stage = Stage.IDLE
        self.deadline = 0.0
        self.is_watched = False
        self.sender: bytes | None = None
        self._length = 0

    def receive(self, piece: bytes) -> None:
        """Add bytes to the request.

        The request also counts as complete if only a thread can read the rest of it or refuse it.
        """
        if not piece:
            return
        # Search new bytes only: a head that arrives byte by byte must not cost quadratic time.
        seen = max(0, len(self.data) - len(_END) + 1)
        self.data += piece
        if self.stage in (Stage.IDLE, Stage.HEAD):
            self._parse_head(seen)
        if self.stage is Stage.BODY and len(self.data) >= self._length:
            self.stage = Stage.COMPLETE

    def take_all(self) -> bytes:
        """Return all bytes of the request and reset this object for the connection's next request."""
        data = bytes(self.data)
        self.data = bytearray()
        self.stage = Stage.IDLE
        self.sender = None
        return data

    def _parse_head(self, seen: int) -> None:
        # The end of the head may straddle two pieces, so start the search a few bytes before the new piece.
        end = self.data.find(_END, seen)
        if end >= 0:
            head = bytes(self.data[: end + 2])
            credential = _CREDENTIAL.search(head)
            self.sender = credential[1] if credential else None
            found = _LENGTH.search(head)
            length = int(found[1]) if found else 0
            # A thread reads any other body, with deadlines of its own (`web/http/receive_deadlines.py`).
            is_small = length <= SMALL_BODY_BYTES and not _ONLY_FOR_A_THREAD.search(head)
            self._length = end + len(_END) + (length if is_small else 0)
            self.stage = Stage.BODY
        elif _BARE_LF.search(self.data, seen):
            # gunicorn refuses such a head at once, so do not wait for its end.
            self.stage = Stage.COMPLETE
        else:
            self.stage = Stage.HEAD if len(self.data) <= LONGEST_HEAD_BYTES else Stage.OVERSIZED


class RequestReader:
    """All requests of a process that have not arrived completely."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.dispatched_bytes = 0
        self._by_address: defaultdict[Any, dict[IncomingRequest, None]] = defaultdict(dict)
        self._bytes: Counter[Any] = Counter()
        self._total_bytes = 0

    def __iter__(self) -> Iterator[IncomingRequest]:
        """Iterate over all requests. Do not add or remove a request meanwhile."""
        for requests in self._by_address.values():
            yield from requests

    def __contains__(self, incoming: IncomingRequest) -> bool:
        """Return whether the reader holds this request, so that the rest of it may still arrive."""
        return incoming in self._by_address.get(incoming.address, ())

    def add(self, incoming: IncomingRequest) -> None:
        """Start to buffer a request."""
        self._by_address[incoming.address][incoming] = None
        self._count(incoming, len(incoming.data))

    def remove(self, incoming: IncomingRequest) -> None:
        """Stop buffering a request."""
        requests = self._by_address[incoming.address]
        del requests[incoming]
        self._count(incoming, -len(incoming.data))
        if not requests:
            del self._by_address[incoming.address]
            del self._bytes[incoming.address]

    def receive(self, incoming: IncomingRequest, piece: bytes) -> None:
        """Add bytes to a request. When its head or body begins, set the deadline of that stage."""
        before = incoming.stage
        incoming.receive(piece)
        self._count(incoming, len(piece))
        # Set a new deadline: a kept connection may be idle for longer than a head may take.
        if before is Stage.IDLE:
            incoming.deadline = min(incoming.deadline, time.monotonic() + self.limits.head_seconds)
        if incoming.stage is Stage.BODY and before is not Stage.BODY:
            incoming.deadline = time.monotonic() + self.limits.small_body_seconds

    @property
    def is_over_limit(self) -> bool:
        """Whether too many bytes are buffered, including requests that threads have not finished."""
        return self._total_bytes + self.dispatched_bytes > self.limits.gathered_bytes

    def find_victim_by_connections(self) -> IncomingRequest | None:
        """Return the request to evict when connections run out.

        The victim is the oldest request of the client address that has most connections.
        """
        if not self._by_address:
            return None
        return next(
            iter(self._by_address[max(self._by_address, key=lambda address: len(self._by_address[address]))])
        )

    def find_victim_by_bytes(self) -> IncomingRequest | None:
        """Return the request to evict when memory runs out.

        The victim is the oldest non-empty request of the client address that has most bytes buffered.
        """
        if not self._total_bytes:
            return None
        # The search is linear in the number of addresses, but it runs only when memory is exhausted.
        address = max(self._bytes, key=self._bytes.__getitem__)
        return next(incoming for incoming in self._by_address[address] if incoming.data)

    def _count(self, incoming: IncomingRequest, size: int) -> None:
        self._bytes[incoming.address] += size
        self._total_bytes += size
