"""Show what a file holds in its page: a picture by its own address, or the beginning of a text.

A picture is loaded from the address that downloads it, under its sandbox policy and never as a page. A text is written
into the page as text. Both are bounded; all else is downloaded.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from shared.errors import DomainError
from shared.files.blobs.base import BlobStore
from shared.files.resources import Availability, File

MAXIMUM_IMAGE_BYTES = 10 << 20
MAXIMUM_TEXT_BYTES = 16 << 10
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"})
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-ndjson"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """A picture, or the beginning of a text."""

    is_image: bool = False
    text: str = ""
    is_cut: bool = False


def find_preview(file: File, store: BlobStore) -> Preview | None:
    """Make the preview of a file's current version; None where there is none, or its bytes cannot be read now."""
    if file.availability is not Availability.AVAILABLE or file.is_damaged:
        return None
    version = file.version
    essence = version.media_type.partition(";")[0].strip().lower()
    if essence in _IMAGES:
        return Preview(is_image=True) if version.byte_size <= MAXIMUM_IMAGE_BYTES else None
    if not essence.startswith("text/") and essence not in _TEXTS:
        return None
    length = min(version.byte_size, MAXIMUM_TEXT_BYTES)
    try:
        with closing(store.open(version.id, placed=True)) as reader:
            raw = b"".join(_read(reader.chunks(0, length))) if length else b""
    except DomainError:
        return None  # the page has all else; downloading says what is wrong
    return Preview(text=_written(raw), is_cut=length < version.byte_size)


def _read(chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        yield bytes(chunk)


def _written(raw: bytes) -> str:
    """Decode a text whose last character may be cut; what is no text, and controls, are shown as such."""
    text = raw.decode("utf-8", "replace")
    return "".join(at if at.isprintable() or at in "\n\t" else "\N{REPLACEMENT CHARACTER}" for at in text)
