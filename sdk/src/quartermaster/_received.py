"""What has arrived of a download, over however many attempts, and its digest."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import IO, Any

from quartermaster.errors import DigestMismatch


@dataclass
class Received:
    """What has arrived so far of the version that the entity tag names."""

    file: IO[bytes]
    start: int
    size_bytes: int = 0
    total_bytes: int = 0
    entity_tag: str | None = None
    digest: Any = field(default_factory=hashlib.sha256)

    def write(self, piece: bytearray) -> None:
        """Take the next bytes."""
        self.file.write(piece)
        self.digest.update(piece)
        self.size_bytes += len(piece)

    def begin(self, entity_tag: str | None, total_bytes: int) -> None:
        """Start from nothing: what came before was of another version."""
        if self.size_bytes:
            self.file.seek(self.start)
            self.file.truncate()
        self.size_bytes, self.total_bytes = 0, total_bytes
        self.entity_tag, self.digest = entity_tag, hashlib.sha256()

    def require_whole(self) -> None:
        """Compare what arrived with the digest that the entity tag is."""
        if self.entity_tag != f'"{self.digest.hexdigest()}"':
            raise DigestMismatch("The content that arrived does not have the digest that was announced.")


def make_durable(part: IO[bytes]) -> None:
    """Have the disk keep what was written."""
    part.flush()
    os.fsync(part.fileno())
