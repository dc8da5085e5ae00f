"""Read a network's document without trusting its shape: what is missing or of another type is left out.

Documents change, and an error would make the network repeat the webhook for hours. Texts that Postgres cannot keep
(NUL, half of a surrogate pair) count as missing.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection, Sequence

from shared.media.networks.webhooks import Payload

MAX_ID_CHARACTERS = 127
"""Two of them and what separates them make an id that is still kept."""
MAX_TEXT_CHARACTERS = 4096
_MAX_COUNT = 1 << 62
_NOTHING: Payload = {}
_UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_URL = re.compile(r"https?://[\x21-\x7e]+")
_HEX_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_SHA256_BYTES = 32


def read_object(body: bytes) -> Payload:
    """Read a JSON object; an empty one stands for anything else."""
    try:
        return as_object(json.loads(body.decode("utf-8")))
    except (ValueError, RecursionError):
        return _NOTHING


def as_object(value: object) -> Payload:
    """Give an object as one, anything else as an empty one."""
    return value if isinstance(value, dict) else _NOTHING


def as_objects(value: object) -> Sequence[Payload]:
    """Give the objects of a list, in their order."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def is_among(value: object, known: Collection[str] | Collection[int]) -> bool:
    """Tell whether a value, which may be of any kind, is one of these words or numbers."""
    return isinstance(value, str | int) and value in known


def as_id(value: object) -> str | None:
    """Give an identifier, which some networks write as a number; None for what cannot be one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_COUNT:
        return str(value)
    text = as_text(value)
    if text is None or len(text) > MAX_ID_CHARACTERS or _CONTROL.search(text):
        return None
    return text


def as_url(value: object) -> str | None:
    """Give an address of the web; None for anything else."""
    text = as_text(value)
    return text if text is not None and _URL.fullmatch(text) else None


def as_text(value: object) -> str | None:
    """Give a text that is not empty and can be kept; None for anything else."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_TEXT_CHARACTERS or _UNKEEPABLE.search(value):
        return None
    return value


def has_unkeepable(text: str) -> bool:
    """Tell whether a text holds what Postgres cannot keep."""
    return _UNKEEPABLE.search(text) is not None


def as_count(value: object) -> int | None:
    """Give a number of bytes, in digits or as a number; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:  # noqa: PLR2004 (63 bits)
        return int(value)
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MAX_COUNT else None  # type: ignore[operator, return-value]


def as_sha256(value: object) -> bytes | None:
    """Give a SHA-256, written in hexadecimal or in base64; None for anything else."""
    text = as_text(value) or ""
    if _HEX_SHA256.fullmatch(text):
        return bytes.fromhex(text)
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return digest if len(digest) == _SHA256_BYTES else None
