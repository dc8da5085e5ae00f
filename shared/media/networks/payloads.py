"""Read a network's JSON without trusting its structure. A missing or wrongly typed value is left out.

Networks change the structure of their JSON, and after an error response a network would repeat the webhook for hours.
Text that Postgres cannot store (NUL, half of a surrogate pair) is treated as missing.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection, Sequence

from shared.media.networks.webhooks import Payload

MAX_ID_CHARACTERS = 127
"""Two ids and a separator still fit into a stored id."""
MAX_TEXT_CHARACTERS = 4096
_MAX_COUNT = 1 << 62
_NOTHING: Payload = {}
_UNKEEPABLE = re.compile("[\x00\ud800-\udfff]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_URL = re.compile(r"https?://[\x21-\x7e]+")
_HEX_SHA256 = re.compile(r"[0-9a-fA-F]{64}", re.ASCII)
_SHA256_BYTES = 32


def read_object(body: bytes) -> Payload:
    """Return a JSON object; an empty one for anything else."""
    try:
        return as_object(json.loads(body.decode("utf-8")))
    # RecursionError: deeply nested JSON, which a hostile sender may send.
    except (ValueError, RecursionError):
        return _NOTHING


def as_object(value: object) -> Payload:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, dict) else _NOTHING


def as_objects(value: object) -> Sequence[Payload]:
    """Return the objects of a list in order; none if the value is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def is_among(value: object, known: Collection[str] | Collection[int]) -> bool:
    """Return whether a value of any type is one of these words or numbers."""
    return isinstance(value, str | int) and value in known


def as_id(value: object) -> str | None:
    """Return an identifier, which some networks write as a number; None if it is invalid."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MAX_COUNT:
        return str(value)
    text = as_text(value)
    if text is None or len(text) > MAX_ID_CHARACTERS or _CONTROL.search(text):
        return None
    return text


def as_url(value: object) -> str | None:
    """Return an http or https URL; None for anything else."""
    text = as_text(value)
    return text if text is not None and _URL.fullmatch(text) else None


def as_text(value: object) -> str | None:
    """Return a non-empty text that can be stored; None for anything else."""
    if not isinstance(value, str) or not 1 <= len(value) <= MAX_TEXT_CHARACTERS or _UNKEEPABLE.search(value):
        return None
    return value


def has_unkeepable(text: str) -> bool:
    """Return whether a text contains characters that Postgres cannot store."""
    return _UNKEEPABLE.search(text) is not None


def as_count(value: object) -> int | None:
    """Return a number of bytes, given as a number or in digits; None for anything else."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 18:  # noqa: PLR2004 (63 bits)
        return int(value)
    # bool is a subclass of int: `true` is no size.
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 <= value < _MAX_COUNT else None  # type: ignore[operator, return-value]


def as_sha256(value: object) -> bytes | None:
    """Return a SHA-256 digest, given in hexadecimal or base64; None for anything else."""
    text = as_text(value) or ""
    if _HEX_SHA256.fullmatch(text):
        return bytes.fromhex(text)
    try:
        digest = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return digest if len(digest) == _SHA256_BYTES else None
