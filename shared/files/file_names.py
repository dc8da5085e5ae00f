"""Clean file names when they arrive, and write them so that every client reads the same name back.

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
# Some browsers read %-escapes in the plain parameter, and not all read backslash escapes: neither may occur in it.
_NOT_PLAIN = re.compile(r'[^\x20-\x7e]|["\\%/]')


def clean_file_name(raw: str) -> str:
    """Return the cleaned name: the last path component, NFC, at most 255 bytes with its suffix.

    Spaces and dots at both ends are removed; an empty name becomes `file`. Idempotent.
    """
    # Some clients send a whole path, Windows clients with backslashes.
    last = raw.replace("\\", "/").rpartition("/")[2]
    visible = "".join(c for c in last if unicodedata.category(c) not in _DROPPED_CATEGORIES)
    return _shorten(unicodedata.normalize("NFC", visible).strip(_TRIMMED)) or NAMELESS


def content_disposition(file_name: str, kind: Literal["attachment", "inline"] = "attachment") -> str:
    """Return the `Content-Disposition` of a download (RFC 6266): the exact name, and an ASCII one for old clients."""
    plain = _NOT_PLAIN.sub("_", _without_accents(file_name)) or NAMELESS
    exact = quote(file_name, safe=_ATTRIBUTE_CHARACTERS)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{exact}"


def _shorten(name: str) -> str:
    if len(name.encode()) <= MAXIMUM_NAME_BYTES:
        return name
    suffix = PurePosixPath(name).suffix
    if len(suffix.encode()) > MAXIMUM_SUFFIX_BYTES:
        # A "suffix" as long as this is not a type; cutting it is better than keeping nothing of the name.
        suffix = ""
    room = MAXIMUM_NAME_BYTES - len(suffix.encode())
    stem = name.removesuffix(suffix).encode()[:room].decode("utf-8", "ignore")
    return stem.rstrip(_TRIMMED) + suffix


def _without_accents(name: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFKD", name) if not unicodedata.combining(c))
