"""Make identifiers: UUID version 7 (RFC 9562), so that new rows land at the end of an index. An id is no secret."""

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
    """Make an id: 48 bits of milliseconds, 12 of the 4096ths of one, 62 of chance.

    Those that a process makes one after the other are so in their order (RFC 9562, 6.2, method 3).
    """
    milliseconds, nanoseconds = divmod(time.time_ns(), 1_000_000)
    fraction = (nanoseconds << 12) // 1_000_000
    random = int.from_bytes(os.urandom(8)) & _RANDOM_MASK
    return UUID(int=milliseconds << 80 | _VERSION | fraction << 64 | _VARIANT | random)


def made_at(made: UUID) -> float:
    """Tell when an id of `new_id` was made, in Unix seconds."""
    return (made.int >> 80) / 1000


def least_id(moment: datetime) -> UUID:
    """Give what is below every id that is made from this moment on, to the millisecond, and above all earlier ones."""
    since = (moment - _EPOCH) / timedelta(milliseconds=1)
    return UUID(int=max(0, ceil(since)) << 80)
