"""Create identifiers: UUID version 7 (RFC 9562), so that new rows are appended to an index. An id is not a secret."""

import os
import time
from datetime import UTC, datetime, timedelta
from math import ceil
from uuid import UUID

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VERSION = 0x7 << 76
_VARIANT = 0x2 << 62
_RANDOM_MASK = (1 << 62) - 1


def new_id() -> UUID:
    """Return a new id: 48 bits of milliseconds, 12 bits of the fraction in 1/4096 ms, 62 random bits.

    Ids that one process creates sort in the order of creation (RFC 9562, 6.2, method 3).
    """
    # One clock reading for both parts, so that they belong together.
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = (nanoseconds << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8)) & _RANDOM_MASK
    return UUID(int=milliseconds << 80 | _VERSION | fraction << 64 | _VARIANT | random)


def made_at(made: UUID) -> float:
    """Return when `new_id` created an id, in Unix seconds."""
    return (made.int >> 80) / 1000


def least_id(moment: datetime) -> UUID:
    """Return a lower bound for ids created at or after this moment, to the millisecond, above all earlier ids."""
    since = (moment - _EPOCH) / timedelta(milliseconds=1)
    return UUID(int=max(0, ceil(since)) << 80)
