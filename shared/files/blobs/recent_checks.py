"""Which local files were read through and found sound a moment ago, and may be sent without another look.

Comparing each chunk costs a download twice what sendfile does. A file that this process compared to its last byte
within the last minute, and whose inode is unchanged, is sent by sendfile, from the memory in which it was sound.
"""

import os
from io import FileIO
from uuid import UUID

from shared.identity.expiring_cache import ExpiringCache

TRUSTED_SECONDS = 60.0
REMEMBERED = 1024

State = tuple[int, ...]
"""What changes with any write to a file."""


class RecentChecks:
    """The files of this process's complete downloads; safe to share between threads."""

    def __init__(self) -> None:
        self._sound = ExpiringCache[State](REMEMBERED)

    def has(self, version_id: UUID, file: FileIO) -> bool:
        """Tell whether this very file was found sound a moment ago."""
        return self._sound.find(version_id.bytes) == state_of(file)

    def note(self, version_id: UUID, state: State) -> None:
        """Remember a file that was found sound from its first byte to its last, as it was before."""
        self._sound.put(version_id.bytes, state, ttl_seconds=TRUSTED_SECONDS)


def state_of(file: FileIO) -> State:
    """Tell what a write would change."""
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
