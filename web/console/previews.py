"""The preview of a file in its page: an image, or the beginning of a text.

The browser loads an image from its download URL. The sandbox policy of that response prevents the browser
from showing the content as a page. A text is escaped into the page. Other types, and images above 10 MiB,
have no preview.
"""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from shared.errors import DomainError
from shared.files.blobs.base import BlobStore
from shared.files.resources import Availability, File

MAXIMUM_IMAGE_BYTES = 10 << 20
MAXIMUM_TEXT_BYTES = 16 << 10
# SVG is left out, because it may contain scripts.
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/bmp"})
_TEXTS = frozenset({"application/json", "application/xml", "application/yaml", "application/x-ndjson"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    """An image, which the browser loads by its URL, or the beginning of a text."""

    is_image: bool = False
    text: str = ""
    is_truncated: bool = False


def find_preview(file: File, store: BlobStore) -> Preview | None:
    """Return the preview of a file's current version.

    Return None if the version has no preview or the blob store fails.
    """
    if file.availability is not Availability.AVAILABLE or file.is_damaged:
        return None
    version = file.version
    # Remove parameters of the media type, such as a charset.
    essence = version.media_type.partition(";")[0].strip().lower()
    if essence in _IMAGES:
        return Preview(is_image=True) if version.byte_size <= MAXIMUM_IMAGE_BYTES else None
    if not essence.startswith("text/") and essence not in _TEXTS:
        return None
    length = min(version.byte_size, MAXIMUM_TEXT_BYTES)
    try:
        with closing(store.open(version.id, placed=True)) as reader:
            raw = b"".join(_copy(reader.chunks(0, length))) if length else b""
    except DomainError:
        # Show the page without a preview. The download reports the error.
        return None
    return Preview(text=_printable(raw), is_truncated=length < version.byte_size)


def _copy(chunks: Iterator[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        yield bytes(chunk)


def _printable(raw: bytes) -> str:
    """Return bytes as text.

    U+FFFD replaces invalid bytes, a truncated last character and control characters.
    """
    text = raw.decode("utf-8", "replace")
    return "".join(at if at.isprintable() or at in "\n\t" else "\N{REPLACEMENT CHARACTER}" for at in text)
