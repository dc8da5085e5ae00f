"""What is uploaded: whatever was given, as a file that can be read again for a retry, with its size and digest.

What can be read only once is first copied to a temporary file: its size must be announced, and a retry needs it.
"""

from __future__ import annotations

import hashlib
import io
import mimetypes
import os
from collections.abc import AsyncIterable, Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

from quartermaster.errors import ContentChanged

BLOCK_BYTES = 1 << 20
SPOOLED_IN_MEMORY_BYTES = 4 << 20
UNKNOWN_TYPE = "application/octet-stream"

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Iterable[bytes]
AsyncSource = Source | AsyncIterable[bytes]
Progress = Callable[[int, int], None]
"""Called with the bytes sent so far and all there are; a retry goes back to what has arrived."""


@dataclass(frozen=True)
class Content:
    """Bytes to upload; `start` is where they begin in the file."""

    file: IO[bytes]
    start: int
    size_bytes: int
    sha256: bytes
    file_name: str
    media_type: str

    def rewind(self, offset: int = 0) -> None:
        """Go to a byte of the content."""
        self.file.seek(self.start + offset)

    def read(self, size_bytes: int) -> bytes:
        """Read some bytes; raise ContentChanged where there are none any more."""
        piece = self.file.read(size_bytes)
        if not piece:
            raise ContentChanged("The source ended before the size that it had when the upload began.")
        return piece


def open_file(source: Any) -> AbstractContextManager[IO[bytes]] | None:
    """Give a file of what can be read again, None for anything else; a caller's file stays open."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    if isinstance(source, (str, os.PathLike)):
        return Path(source).open("rb")
    if isinstance(source, io.TextIOBase):
        raise TypeError("Open the file in binary mode, to upload exactly its bytes.")
    if _is_readable(source) and source.seekable():
        return nullcontext(source)
    return None


def read_once(source: Any) -> Any:
    """Give the pieces, to be iterated over, of what cannot be read again: a pipe, or an iterable."""
    return iter(partial(source.read, BLOCK_BYTES), b"") if _is_readable(source) else source


def new_spool() -> IO[bytes]:
    """Make a temporary file for what can be read only once."""
    return SpooledTemporaryFile(max_size=SPOOLED_IN_MEMORY_BYTES)


def measure(file: IO[bytes], file_name: str, media_type: str | None) -> Content:
    """Read a file from where it stands to its end, for size and digest."""
    start, digest, size_bytes = file.tell(), hashlib.sha256(), 0
    while piece := file.read(BLOCK_BYTES):
        if not isinstance(piece, bytes):
            raise TypeError("Open the file in binary mode, to upload exactly its bytes.")
        digest.update(piece)
        size_bytes += len(piece)
    return Content(
        file=file,
        start=start,
        size_bytes=size_bytes,
        sha256=digest.digest(),
        file_name=file_name,
        media_type=media_type or mimetypes.guess_type(file_name)[0] or UNKNOWN_TYPE,
    )


def name_of(source: object, file_name: str | None) -> str:
    """Give the name to store content under; raise ValueError when none was given and the source has none."""
    own = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    name = file_name or (Path(own).name if isinstance(own, (str, os.PathLike)) else "")
    if not name:
        raise ValueError("This source has no name of its own: give file_name.")
    return name


def _is_readable(source: object) -> bool:
    return hasattr(source, "read")
