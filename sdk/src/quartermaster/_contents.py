"""The content of an upload: a file with its size and digest. A retry can read the file again.

A source that can be read only once is first copied to a temporary file. The request must announce the size before the
content, and a retry must be able to read the content again.
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
SPOOLED_IN_MEMORY_BYTES = 4 << 20  # a larger temporary copy is written to the disk
UNKNOWN_TYPE = "application/octet-stream"

Source = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes] | Iterable[bytes]
AsyncSource = Source | AsyncIterable[bytes]
Progress = Callable[[int, int], None]
"""A function that receives the bytes transferred so far and the total bytes. A retry may report fewer bytes."""


@dataclass(frozen=True)
class Content:
    """The bytes to upload. `start` is the offset of the first byte in the file."""

    file: IO[bytes]
    start: int
    size_bytes: int
    sha256: bytes
    file_name: str
    media_type: str

    def rewind(self, offset: int = 0) -> None:
        """Seek to an offset of the content."""
        self.file.seek(self.start + offset)

    def read(self, size_bytes: int) -> bytes:
        """Return up to `size_bytes` bytes. Raises ContentChanged at the end of the file."""
        piece = self.file.read(size_bytes)
        if not piece:
            raise ContentChanged("The source became shorter during the upload.")
        return piece


def open_file(source: Any) -> AbstractContextManager[IO[bytes]] | None:
    """Return an open file if the source can be read more than once, else None. The caller's own file stays open."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return io.BytesIO(source)
    if isinstance(source, (str, os.PathLike)):
        return Path(source).open("rb")
    if isinstance(source, io.TextIOBase):
        raise TypeError("The file is open in text mode; open it in binary mode to upload its exact bytes.")
    if _is_readable(source) and source.seekable():
        return nullcontext(source)
    return None


def read_once(source: Any) -> Any:
    """Return an iterable over the pieces of a pipe or an iterable, which can be read only once."""
    return iter(partial(source.read, BLOCK_BYTES), b"") if _is_readable(source) else source


def new_spool() -> IO[bytes]:
    """Create a temporary file for a source that can be read only once."""
    return SpooledTemporaryFile(max_size=SPOOLED_IN_MEMORY_BYTES)


def measure(file: IO[bytes], file_name: str, media_type: str | None) -> Content:
    """Return the content from the file's position to its end, after reading it to compute its size and digest."""
    start, digest, size_bytes = file.tell(), hashlib.sha256(), 0
    while piece := file.read(BLOCK_BYTES):
        # Reject text: the caller's encoding is unknown, and Python may have converted the line ends.
        if not isinstance(piece, bytes):
            raise TypeError(
                "The file is open in text mode; open it in binary mode to upload its exact bytes."
            )
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
    """Return `file_name`, or the source's own name if it is None. Raises ValueError if both names are missing."""
    own = source if isinstance(source, (str, os.PathLike)) else getattr(source, "name", None)
    name = file_name or (Path(own).name if isinstance(own, (str, os.PathLike)) else "")
    if not name:
        raise ValueError("The source has no file name; pass file_name.")
    return name


def _is_readable(source: object) -> bool:
    return hasattr(source, "read")
