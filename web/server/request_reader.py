"""Requests on their way in: what has come of each, until when the rest may come, and who loses when room is scarce.

Nothing here touches a socket or waits. The rule it protects: a request costs memory and a connection while it arrives,
never a thread; the memory and the connections are shared among the addresses they come from (of IPv6 its network of
64 bits), so that the address that has most of them gives way first.
"""

import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from shared.fairness.admission import anonymous_key

LONGEST_HEAD_BYTES = 64 << 10
"""Twice what nginx passes on; gunicorn's own, lower limits on lines and fields are checked once a head is complete."""
SMALL_BODY_BYTES = 128 << 10
_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,18})[ \t]*\r\n", re.IGNORECASE)
_ONLY_FOR_A_THREAD = re.compile(rb"\r\n(?:transfer-encoding|expect):", re.IGNORECASE)
_CREDENTIAL = re.compile(rb"\r\nauthorization:[ \t]*([^\r]+)\r\n", re.IGNORECASE)
_BARE_LF = re.compile(rb"(?<!\r)\n")


class Stage(Enum):
    """How far a request has come."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    WHOLE = auto()
    OVERSIZED = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long parts of a request may take to arrive, and how much of all of them is kept."""

    head_seconds: float = 5.0
    small_body_seconds: float = 10.0
    gathered_bytes: int = 64 << 20
    turn_seconds: float = 5.0


class Arrival:
    """The next request of one connection, as far as it has come."""

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

    def take(self, piece: bytes) -> None:
        """Add what has come. A request is whole, too, when only a thread can read on or refuse it."""
        if not piece:
            return
        seen = max(0, len(self.data) - len(_END) + 1)
        self.data += piece
        if self.stage in (Stage.IDLE, Stage.HEAD):
            self._look_for_body(seen)
        if self.stage is Stage.BODY and len(self.data) >= self._length:
            self.stage = Stage.WHOLE

    def hand_over(self) -> bytes:
        """Give all that has come, and begin again with nothing: the next request of the connection."""
        data = bytes(self.data)
        self.data = bytearray()
        self.stage = Stage.IDLE
        self.sender = None
        return data

    def _look_for_body(self, seen: int) -> None:
        end = self.data.find(_END, seen)
        if end >= 0:
            head = bytes(self.data[: end + 2])
            credential = _CREDENTIAL.search(head)
            self.sender = credential[1] if credential else None
            found = _LENGTH.search(head)
            length = int(found[1]) if found else 0
            is_small = length <= SMALL_BODY_BYTES and not _ONLY_FOR_A_THREAD.search(head)
            self._length = end + len(_END) + (length if is_small else 0)
            self.stage = Stage.BODY
        elif _BARE_LF.search(
            self.data, seen
        ):  # which gunicorn refuses at once, where we would wait for a good end
            self.stage = Stage.WHOLE
        else:
            self.stage = Stage.HEAD if len(self.data) <= LONGEST_HEAD_BYTES else Stage.OVERSIZED


class RequestReader:
    """All requests of a process that are not whole yet."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.handed_over_bytes = 0
        self._of: defaultdict[Any, dict[Arrival, None]] = defaultdict(dict)
        self._bytes: Counter[Any] = Counter()
        self._total_bytes = 0

    def __iter__(self) -> Iterator[Arrival]:
        """Iterate over all of them; none may come or go meanwhile."""
        for mine in self._of.values():
            yield from mine

    def __contains__(self, arrival: Arrival) -> bool:
        """Tell whether it still is expected."""
        return arrival in self._of.get(arrival.address, ())

    def add(self, arrival: Arrival) -> None:
        """Expect a request."""
        self._of[arrival.address][arrival] = None
        self._count(arrival, len(arrival.data))

    def remove(self, arrival: Arrival) -> None:
        """Stop expecting a request."""
        mine = self._of[arrival.address]
        del mine[arrival]
        self._count(arrival, -len(arrival.data))
        if not mine:
            del self._of[arrival.address]
            del self._bytes[arrival.address]

    def take(self, arrival: Arrival, piece: bytes) -> None:
        """Add what has come of a request; each part of it has its own time limit."""
        before = arrival.stage
        arrival.take(piece)
        self._count(arrival, len(piece))
        if before is Stage.IDLE:
            arrival.deadline = min(arrival.deadline, time.monotonic() + self.limits.head_seconds)
        if arrival.stage is Stage.BODY and before is not Stage.BODY:
            arrival.deadline = time.monotonic() + self.limits.small_body_seconds

    @property
    def is_too_much(self) -> bool:
        """Whether more is kept than may be, the requests included that threads have not answered yet."""
        return self._total_bytes + self.handed_over_bytes > self.limits.gathered_bytes

    def find_longest(self) -> Arrival | None:
        """Find what goes when connections are scarce: the oldest of the address that has most."""
        if not self._of:
            return None
        return next(iter(self._of[max(self._of, key=lambda address: len(self._of[address]))]))

    def find_largest(self) -> Arrival | None:
        """Find what goes when memory is scarce: the oldest with any bytes of the address that has most bytes."""
        if not self._total_bytes:
            return None
        address = max(self._bytes, key=self._bytes.__getitem__)
        return next(arrival for arrival in self._of[address] if arrival.data)

    def _count(self, arrival: Arrival, size: int) -> None:
        self._bytes[arrival.address] += size
        self._total_bytes += size
