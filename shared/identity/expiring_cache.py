"""A bounded in-process cache with a time to live per entry, for verified signatures and rows that were just read.

When the cache is full, the entry that was inserted first is evicted. A time to live of zero stores nothing.
"""

import threading
import time
from typing import Generic, TypeVar

V = TypeVar("V")


class ExpiringCache(Generic[V]):
    """A cache of values by the SHA-256 of the credential for which they were read; safe to share between threads."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[bytes, tuple[float, V]] = {}
        self._writing = threading.Lock()

    def find(self, key: bytes) -> V | None:
        """Return the value of a key, or None if it is absent or has expired."""
        # Take no lock: looking a key up in a dict is atomic, and an entry is never changed in place.
        entry = self._entries.get(key)
        if entry is None or entry[0] <= time.monotonic():
            return None
        return entry[1]

    def put(self, key: bytes, value: V, *, ttl_seconds: float) -> None:
        """Store a value for `ttl_seconds`."""
        if ttl_seconds <= 0:
            return
        with self._writing:
            # Remove before inserting, so that a renewed entry moves to the end of the eviction order.
            self._entries.pop(key, None)
            while len(self._entries) >= self._limit:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = (time.monotonic() + ttl_seconds, value)

    def __len__(self) -> int:
        return len(self._entries)
