"""The local files that were read completely and found sound a moment ago, and may be sent without another check.

Checking each chunk makes a download cost twice what sendfile costs. A file that this process read and checked to its
last byte within the last minute, and with an unchanged inode, is sent by sendfile from the page cache.
"""

import os
from io import FileIO
from uuid import UUID

from shared.identity.expiring_cache import ExpiringCache

TRUSTED_SECONDS = 60.0
REMEMBERED = 1024

State = tuple[int, ...]
"""The values of a file that any write changes."""


class RecentChecks:
    """The files of this process's complete downloads; safe to share between threads."""

    def __init__(self) -> None:
        self._sound = ExpiringCache[State](REMEMBERED)

    def has(self, version_id: UUID, file: FileIO) -> bool:
        """Return whether exactly this file was found sound a moment ago."""
        return self._sound.find(version_id.bytes) == state_of(file)

    def note(self, version_id: UUID, state: State) -> None:
        """Record that a file was sound from its first byte to its last; `state` is from before it was read."""
        self._sound.put(version_id.bytes, state, ttl_seconds=TRUSTED_SECONDS)


def state_of(file: FileIO) -> State:
    """Return the values that any write to the file changes."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
