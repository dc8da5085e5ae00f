"""The state of a download over several attempts: the received bytes and their digest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import IO, Any

from quartermaster.errors import DigestMismatch


@dataclass
class DownloadState:
    """The bytes received so far, and the entity tag of the version to which the bytes belong."""

    file: IO[bytes]
    start: int
    size_bytes: int = 0
    total_bytes: int = 0
    entity_tag: str | None = None
    digest: Any = field(default_factory=hashlib.sha256)

    def write(self, piece: bytearray) -> None:
        """Append the next bytes to the file and the digest."""
        self.file.write(piece)
        self.digest.update(piece)
        self.size_bytes += len(piece)

    def restart(self, entity_tag: str | None, total_bytes: int) -> None:
        """Discard the received bytes, because a response begins with the first byte, perhaps of another version."""
        # Seek only if bytes were written: a file such as standard output cannot seek.
        if self.size_bytes:
            self.file.seek(self.start)
            self.file.truncate()
        self.size_bytes, self.total_bytes = 0, total_bytes
        self.entity_tag, self.digest = entity_tag, hashlib.sha256()

    def verify_digest(self) -> None:
        """Raise DigestMismatch unless the content has the digest in its entity tag."""
        # The service uses the SHA-256 of the content, in quotes, as the entity tag, so compare the two.
        if self.entity_tag != f'"{self.digest.hexdigest()}"':
            raise DigestMismatch(
                "The downloaded content does not have the digest that the service announced; download it again."
            )


def flush_to_disk(part: IO[bytes]) -> None:
    """Flush a file's buffers to the disk, so that the file survives a crash of the machine."""
    part.flush()
    os.fsync(part.fileno())
