"""Clean the names of received files, and encode the names in responses so that every client reads the same name.

A stored name is one path component without control, format or separator characters, so that it can stand in a header, a
log line or a page. It is never used as a path or key.
"""

import re
import unicodedata
from pathlib import PurePosixPath
from typing import Literal
from urllib.parse import quote

MAXIMUM_NAME_BYTES = 255
MAXIMUM_SUFFIX_BYTES = 32
NAMELESS = "file"

_DROPPED_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_TRIMMED = (
    ". \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"
)
# RFC 8187, 3.2.1: the characters that need no escape, besides letters and digits.
_ATTRIBUTE_CHARACTERS = "!#$&+-.^_`|~"
# The plain parameter must contain neither: some browsers decode %-escapes in it, and some do not decode backslashes.
_NOT_PLAIN = re.compile(r'[^\x20-\x7e]|["\\%/]')


def clean_file_name(raw: str) -> str:
    """Return the cleaned name: the last path component in NFC, with its suffix at most 255 bytes long.

    Spaces and dots at both ends are removed; an empty name becomes `file`. A cleaned name does not change if it is
    cleaned again.
    """
    # Keep only the last component: some clients send a whole path, on Windows with backslashes.
    last = raw.replace("\\", "/").rpartition("/")[2]
    visible = "".join(c for c in last if unicodedata.category(c) not in _DROPPED_CATEGORIES)
    return _shorten(unicodedata.normalize("NFC", visible).strip(_TRIMMED)) or NAMELESS


def content_disposition(file_name: str, kind: Literal["attachment", "inline"] = "attachment") -> str:
    """Return the `Content-Disposition` of a download (RFC 6266), with the exact name and an ASCII form of the name."""
    plain = _NOT_PLAIN.sub("_", _without_accents(file_name)) or NAMELESS
    exact = quote(file_name, safe=_ATTRIBUTE_CHARACTERS)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{exact}"


def _shorten(name: str) -> str:
    if len(name.encode()) <= MAXIMUM_NAME_BYTES:
        return name
    suffix = PurePosixPath(name).suffix
    if len(suffix.encode()) > MAXIMUM_SUFFIX_BYTES:
        # Treat so long a "suffix" as part of the name: otherwise the cut would remove the whole name.
        suffix = ""
    room = MAXIMUM_NAME_BYTES - len(suffix.encode())
    stem = name.removesuffix(suffix).encode()[:room].decode("utf-8", "ignore")
    return stem.rstrip(_TRIMMED) + suffix


def _without_accents(name: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
