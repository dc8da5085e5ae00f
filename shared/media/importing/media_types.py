"""Choose the media type of content from its declared type and first bytes; refuse content that is dangerous to open.

The declared type is kept if the content's signature has the same top-level type, or if there is no signature to
compare. If the content differs from the declared type, the result is `application/octet-stream`. A page, script or
program that is declared as inert media is refused, because it is an attack or a login page
(docs/specification/media.md#media-types).
"""

from shared.media.errors import MediaTypeMismatch
from shared.media.importing.content_signatures import SIGNATURES, DetectedType, Nature, sniff

UNKNOWN = "application/octet-stream"
_CLAIM_NOTHING = frozenset({UNKNOWN, "binary/octet-stream", "application/binary", "application/unknown"})


def label(declared: str | None, head: bytes) -> str:
    """Return the media type to store for content that starts with `head`. Raises MediaTypeMismatch."""
    sniffed = sniff(head)
    if declared is None:
        # Without a declared type, return only a harmless type: content is a page or program only if it is declared as
        # one.
        return sniffed.media_type if sniffed is not None and sniffed.nature is Nature.INERT else UNKNOWN
    essence = essence_of(declared)
    # Keep a generic type even if the content is recognized: the sender chose the type, with which browsers download
    # the file.
    if essence in _CLAIM_NOTHING:
        return UNKNOWN
    if sniffed is None:
        return UNKNOWN if essence in _ALWAYS_SIGNED else declared
    if sniffed.nature is not Nature.INERT:
        return _label_active(declared, essence, sniffed)
    return declared if _agrees(essence, sniffed) else UNKNOWN


def claim_of(media_type: str | None) -> str | None:
    """Return the media type; None if it is a generic type, which many servers send for any content."""
    return None if media_type is None or essence_of(media_type) in _CLAIM_NOTHING else media_type


def essence_of(media_type: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()


def suffix_of(media_type: str) -> str:
    """Return the suffix for a file without a name; empty for a type that has no usual suffix."""
    return _SUFFIXES.get(essence_of(media_type), "")


def _label_active(declared: str, essence: str, sniffed: DetectedType) -> str:
    family = essence.partition("/")[0]
    if sniffed.nature is Nature.PAGE:
        # Accept any declared text type: it is harmless, because browsers never render a download.
        is_honest = family == "text" or essence == "application/xml" or essence.endswith("+xml")
    else:
        is_honest = essence in _PROGRAM_TYPES or (family == "text" and "text" in sniffed.families)
    if not is_honest:
        raise MediaTypeMismatch
    return declared


def _agrees(essence: str, sniffed: DetectedType) -> bool:
    family = essence.partition("/")[0]
    if family == "application" and essence in _ALWAYS_SIGNED:
        return essence == sniffed.media_type or essence in _OTHER_NAMES.get(sniffed.media_type, ())
    return family in sniffed.families


# Content of these types always starts with a signature. Exclude MP3, AAC and MPEG: such streams may start anywhere.
_ALWAYS_SIGNED = frozenset(
    {signature.sniffed.media_type for signature in SIGNATURES} - {"audio/mpeg", "audio/aac", "video/mpeg"}
) | {"video/mp4", "audio/mp4", "video/quicktime", "image/heic", "image/heif", "image/avif", "application/ogg"}
_OTHER_NAMES = {
    "audio/ogg": {"application/ogg"},
    "application/vnd.rar": {"application/x-rar-compressed"},
    "application/gzip": {"application/x-gzip"},
    "application/zip": {"application/x-zip-compressed"},
}

_PROGRAM_TYPES = frozenset(
    f"application/{name}"
    for name in (
        "x-executable",
        "x-elf",
        "x-sharedlib",
        "x-mach-binary",
        "x-dosexec",
        "x-msdownload",
        "x-msdos-program",
        "vnd.microsoft.portable-executable",
        "java-vm",
        "x-java-applet",
        "x-sh",
        "x-shellscript",
        "x-python",
        "x-perl",
        "x-httpd-php",
    )
)
_SUFFIXES = {
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/heic": ".heic",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/mp4": ".m4a",
    "audio/amr": ".amr",
    "audio/wav": ".wav",
    "video/mp4": ".mp4",
    "video/quicktime": ".mov",
    "video/webm": ".webm",
    "application/pdf": ".pdf",
    "application/zip": ".zip",
    "text/plain": ".txt",
    "text/csv": ".csv",
    "text/vcard": ".vcf",
}
