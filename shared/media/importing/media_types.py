"""Label content by its declared type and its first bytes; refuse dangerous content under a harmless type.

The declared type stays if the signature is of its family, or if there is no signature to compare. It becomes
`application/octet-stream` if the content differs. A page, script or program declared as inert media is refused: it is
an attack, or a login page instead of the media (docs/specification/media.md#media-types).
"""

from shared.media.errors import MediaTypeMismatch
from shared.media.importing.content_signatures import SIGNATURES, DetectedType, Nature, sniff

UNKNOWN = "application/octet-stream"
_CLAIM_NOTHING = frozenset({UNKNOWN, "binary/octet-stream", "application/binary", "application/unknown"})


def label(declared: str | None, head: bytes) -> str:
    """Return the media type to store for content that starts with `head`. Raises MediaTypeMismatch."""
    sniffed = sniff(head)
    if declared is None:
        # A page or program must be declared as such: the content alone never makes it one.
        return sniffed.media_type if sniffed is not None and sniffed.nature is Nature.INERT else UNKNOWN
    essence = essence_of(declared)
    # Kept generic even if the content is recognized: the sender chose it, and browsers then download it.
    if essence in _CLAIM_NOTHING:
        return UNKNOWN
    if sniffed is None:
        return UNKNOWN if essence in _ALWAYS_SIGNED else declared
    if sniffed.nature is not Nature.INERT:
        return _label_active(declared, essence, sniffed)
    return declared if _agrees(essence, sniffed) else UNKNOWN


def claim_of(media_type: str | None) -> str | None:
    """Return a media type unless it is a generic one, which many servers send for everything; None then."""
    return None if media_type is None or essence_of(media_type) in _CLAIM_NOTHING else media_type


def essence_of(media_type: str) -> str:
    """Return a media type without its parameters, in lower case."""
    return media_type.partition(";")[0].strip().lower()


def suffix_of(media_type: str) -> str:
    """Return the suffix for a file without a name; empty for types without a usual one."""
    return _SUFFIXES.get(essence_of(media_type), "")


def _label_active(declared: str, essence: str, sniffed: DetectedType) -> str:
    family = essence.partition("/")[0]
    if sniffed.nature is Nature.PAGE:
        # Any text type is harmless as a label, because downloads are never rendered.
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


# Content of these types always starts with its signature; MP3, AAC and MPEG streams may start anywhere.
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
