"""Detect the media type of content from its first bytes, and whether the content is dangerous to open.

Only common types and dangerous types are detected. The content is not decoded.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

HEAD_BYTES = 1024


class Nature(StrEnum):
    """The danger of content for a person who opens it."""

    INERT = "inert"
    PAGE = "page"
    PROGRAM = "program"


@dataclass(frozen=True, slots=True, kw_only=True)
class DetectedType:
    """A detected media type, and the top-level types that a sender may declare for such content."""

    media_type: str
    families: frozenset[str]
    nature: Nature = Nature.INERT


def sniff(head: bytes) -> DetectedType | None:
    """Return the type that the first HEAD_BYTES of content indicate; None if the type is unknown."""
    head = head[:HEAD_BYTES]
    for signature in SIGNATURES:
        if signature.matches(head):
            return signature.sniffed
    # Check for HTML last: its detection skips white space and is the least exact.
    return _sniff_iso_media(head) or _sniff_program(head) or _sniff_page(head)


@dataclass(frozen=True, slots=True)
class _Signature:
    sniffed: DetectedType
    pieces: Sequence[tuple[int, bytes]]

    def matches(self, head: bytes) -> bool:
        return all(head.startswith(piece, offset) for offset, piece in self.pieces)


def _signed(media_type: str, *pieces: tuple[int, bytes], also: Sequence[str] = ()) -> _Signature:
    families = frozenset({media_type.partition("/")[0], *also})
    return _Signature(DetectedType(media_type=media_type, families=families), pieces)


SIGNATURES = (
    _signed("image/png", (0, b"\x89PNG\r\n\x1a\n")),
    _signed("image/jpeg", (0, b"\xff\xd8\xff")),
    _signed("image/gif", (0, b"GIF87a")),
    _signed("image/gif", (0, b"GIF89a")),
    _signed("image/webp", (0, b"RIFF"), (8, b"WEBP")),
    _signed("image/bmp", (0, b"BM"), (6, b"\0\0\0\0")),
    _signed("image/tiff", (0, b"II*\0")),
    _signed("image/tiff", (0, b"MM\0*")),
    _signed("audio/wav", (0, b"RIFF"), (8, b"WAVE")),
    _signed("video/x-msvideo", (0, b"RIFF"), (8, b"AVI ")),
    _signed("audio/ogg", (0, b"OggS"), also=("video", "application")),
    _signed("audio/mpeg", (0, b"ID3")),
    _signed("audio/mpeg", (0, b"\xff\xfb")),
    _signed("audio/mpeg", (0, b"\xff\xf3")),
    _signed("audio/mpeg", (0, b"\xff\xf2")),
    _signed("audio/aac", (0, b"\xff\xf1")),
    _signed("audio/aac", (0, b"\xff\xf9")),
    _signed("audio/flac", (0, b"fLaC")),
    _signed("audio/amr", (0, b"#!AMR")),
    _signed("audio/x-caf", (0, b"caff")),
    _signed("video/webm", (0, b"\x1aE\xdf\xa3"), also=("audio",)),
    _signed("video/x-flv", (0, b"FLV\x01")),
    _signed("video/mpeg", (0, b"\0\0\x01\xba")),
    _signed("video/mpeg", (0, b"\0\0\x01\xb3")),
    _signed("application/pdf", (0, b"%PDF-")),
    _signed("application/zip", (0, b"PK\x03\x04"), also=("model",)),
    _signed("application/zip", (0, b"PK\x05\x06")),
    _signed("application/gzip", (0, b"\x1f\x8b\x08")),
    _signed("application/x-7z-compressed", (0, b"7z\xbc\xaf\x27\x1c")),
    _signed("application/vnd.rar", (0, b"Rar!\x1a\x07")),
    _signed("application/x-bzip2", (0, b"BZh"), (4, b"1AY&SY")),
    _signed("application/x-xz", (0, b"\xfd7zXZ\0")),
    _signed("application/x-cfb", (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")),
    _signed("application/rtf", (0, b"{\\rtf"), also=("text",)),
    _signed("font/woff", (0, b"wOFF"), also=("application",)),
    _signed("font/woff2", (0, b"wOF2"), also=("application",)),
)
_VIDEO = frozenset({"video", "audio", "application"})
_IMAGE = frozenset({"image"})
_ISO_BRANDS = {
    b"qt  ": DetectedType(media_type="video/quicktime", families=_VIDEO),
    b"M4A ": DetectedType(media_type="audio/mp4", families=_VIDEO),
    b"M4B ": DetectedType(media_type="audio/mp4", families=_VIDEO),
    b"heic": DetectedType(media_type="image/heic", families=_IMAGE),
    b"heix": DetectedType(media_type="image/heic", families=_IMAGE),
    b"mif1": DetectedType(media_type="image/heif", families=_IMAGE),
    b"msf1": DetectedType(media_type="image/heif", families=_IMAGE),
    b"avif": DetectedType(media_type="image/avif", families=_IMAGE),
    b"avis": DetectedType(media_type="image/avif", families=_IMAGE),
}
_MP4 = DetectedType(media_type="video/mp4", families=_VIDEO)
_QUICKTIME = _ISO_BRANDS[b"qt  "]
_FIRST_BOXES = frozenset({b"moov", b"mdat", b"wide", b"free", b"skip", b"styp"})

_BINARY_PROGRAM = DetectedType(
    media_type="application/x-executable", families=frozenset({"application"}), nature=Nature.PROGRAM
)
_SCRIPT = DetectedType(
    media_type="text/x-shellscript", families=frozenset({"application", "text"}), nature=Nature.PROGRAM
)
_PROGRAM_MAGIC = (
    b"\x7fELF",
    b"\xfe\xed\xfa\xce",
    b"\xfe\xed\xfa\xcf",
    b"\xce\xfa\xed\xfe",
    b"\xcf\xfa\xed\xfe",
    # Java class files and universal Mach-O binaries.
    b"\xca\xfe\xba\xbe",
)
_PE_OFFSET_AT = 0x3C

_PAGE = DetectedType(media_type="text/html", families=frozenset({"text"}), nature=Nature.PAGE)
_XML = DetectedType(media_type="text/xml", families=frozenset({"text"}), nature=Nature.PAGE)
_SVG = DetectedType(media_type="image/svg+xml", families=frozenset({"image"}), nature=Nature.PAGE)
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# The prefixes by which browsers detect HTML (WHATWG, MIME sniffing). White space or `>` must follow each prefix.
_PAGE_TAGS = tuple(
    b"<" + name + end
    for name in (
        b"!doctype html",
        b"html",
        b"head",
        b"script",
        b"iframe",
        b"h1",
        b"div",
        b"font",
        b"table",
        b"a",
        b"style",
        b"title",
        b"b",
        b"body",
        b"br",
        b"p",
        b"meta",
    )
    for end in (b" ", b">", b"\t", b"\n", b"\r")
)


def _sniff_iso_media(head: bytes) -> DetectedType | None:
    """Return the type of MP4 and related content by the brand in the first box (ISO/IEC 14496-12).

    Older QuickTime content has no brand. It is detected by the name of its first box, and by a box length whose bytes
    occur at the start of no text.
    """
    if head[4:8] == b"ftyp":
        return _ISO_BRANDS.get(head[8:12], _MP4)
    return _QUICKTIME if head[:1] == b"\0" and head[4:8] in _FIRST_BOXES else None


def _sniff_program(head: bytes) -> DetectedType | None:
    if head.startswith(_PROGRAM_MAGIC) or _is_windows_program(head):
        return _BINARY_PROGRAM
    return _SCRIPT if head.startswith(b"#!") else None


def _is_windows_program(head: bytes) -> bool:
    """Return whether the content is a PE file. Both signatures are checked, because a text may start with MZ."""
    if not head.startswith(b"MZ"):
        return False
    # Read the offset of the PE header from the DOS header.
    offset = int.from_bytes(head[_PE_OFFSET_AT : _PE_OFFSET_AT + 4], "little")
    return head.startswith(b"PE\0\0", offset)


def _sniff_page(head: bytes) -> DetectedType | None:
    # Skip a byte order mark and white space, as browsers do before they search for a tag.
    text = head.removeprefix(_BYTE_ORDER_MARK).lstrip(b" \t\r\n\f").lower()
    if text.startswith((b"<?xml", b"<svg", b"<!--", b"<!doctype svg")):
        if b"<svg" in text:
            return _SVG
        return _XML if text.startswith(b"<?xml") else _PAGE
    return _PAGE if text.startswith(_PAGE_TAGS) else None
