"""A bounded cache whose entries expire: lets a process trust a row or a signature for a moment.

Reading takes no lock. The oldest entry goes when it is full. A time to live of zero turns the cache off.
"""

import threading
import time
from typing import Generic, TypeVar

V = TypeVar("V")


class ExpiringCache(Generic[V]):
    """Values by the digest of what they were made from."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[bytes, tuple[float, V]] = {}
        self._writing = threading.Lock()

    def find(self, key: bytes) -> V | None:
        """Give the value of a key, unless it is absent or expired."""
        entry = self._entries.get(key)
        if entry is None or entry[0] <= time.monotonic():
            return None
        return entry[1]

    def put(self, key: bytes, value: V, *, ttl_seconds: float) -> None:
        """Keep a value for a while."""
        if ttl_seconds <= 0:
            return
        with self._writing:
            self._entries.pop(key, None)
            while len(self._entries) >= self._limit:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = (time.monotonic() + ttl_seconds, value)

    def __len__(self) -> int:
        return len(self._entries)
