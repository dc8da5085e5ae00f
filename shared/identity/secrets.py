"""The form of our secrets: a prefix that says what it opens, 256 random bits in base62, and a checksum.

`svk_` API key, `svs_` client secret, `svg_` read grant, `svd_` distribution token, `svi_` invitation, `svl_` console
link, `svc_` console session; `whsec_` webhook secret, base64 without a checksum, as in Standard Webhooks. The checksum
(CRC32) drops typing errors before any query. With 256 random bits a plain SHA-256 is safe to store; a slow hash would
let strangers burn our processor.
"""

import base64
import hashlib
import hmac
import os
import re
import zlib
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

WEBHOOK_SECRET_PREFIX = "whsec_"  # noqa: S105 (a prefix, not a secret)
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_RANDOM_BYTES = 32
_BODY_CHARACTERS = 43
_CHECKSUM_CHARACTERS = 6
_FORM = re.compile(r"(sv[a-z]_)[0-9A-Za-z]{43}[0-9A-Za-z]{6}", re.ASCII)


class Prefix(StrEnum):
    """What a secret opens."""

    API_KEY = "svk_"
    CLIENT_SECRET = "svs_"  # noqa: S105 (a prefix, not a secret)
    GRANT = "svg_"
    DISTRIBUTION_TOKEN = "svd_"  # noqa: S105 (a prefix, not a secret)
    INVITATION = "svi_"
    CONSOLE_LINK = "svl_"
    CONSOLE_SESSION = "svc_"


_LENGTH = len(Prefix.API_KEY) + _BODY_CHARACTERS + _CHECKSUM_CHARACTERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """A new secret: `value` is shown once, `hash` is stored, `last4` may be displayed."""

    value: str = field(repr=False)
    hash: bytes = field(repr=False)
    last4: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSecret:
    """What may be shown of a stored secret."""

    last4: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


def issue(prefix: Prefix) -> Secret:
    """Make a new random secret."""
    body = _base62(int.from_bytes(os.urandom(_RANDOM_BYTES)), _BODY_CHARACTERS)
    return _secret(prefix + body + _checksum(prefix + body))


def derive(prefix: Prefix, key: bytes, purpose: str) -> Secret:
    """Derive the secret of a purpose from a key: the same key gives the same secret."""
    body = _base62(int.from_bytes(hmac.digest(key, purpose.encode(), "sha256")), _BODY_CHARACTERS)
    return _secret(prefix + body + _checksum(prefix + body))


def issue_webhook_secret() -> Secret:
    """Make a webhook secret: `whsec_` and the base64 of 32 random bytes (Standard Webhooks)."""
    return _secret(WEBHOOK_SECRET_PREFIX + base64.b64encode(os.urandom(_RANDOM_BYTES)).decode())


def is_well_formed(value: str, prefix: Prefix) -> bool:
    """Tell whether this can be a secret of that kind at all, without asking the database."""
    if len(value) != _LENGTH or not value.startswith(prefix) or _FORM.fullmatch(value) is None:
        return False
    return _checksum(value[:-_CHECKSUM_CHARACTERS]) == value[-_CHECKSUM_CHARACTERS:]


def hash_secret(value: str) -> bytes:
    """Give the SHA-256 under which a secret is stored and found."""
    return hashlib.sha256(value.encode("utf-8", "surrogatepass")).digest()


def _secret(value: str) -> Secret:
    return Secret(value=value, hash=hash_secret(value), last4=value[-4:])


def _checksum(text: str) -> str:
    return _base62(zlib.crc32(text.encode("ascii")), _CHECKSUM_CHARACTERS)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(_ALPHABET[digit])
    return "".join(reversed(digits))
