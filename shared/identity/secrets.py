"""The format of secrets: a prefix for the kind, 256 random bits in base62, and a CRC32 checksum.

`svk_` API key, `svs_` client secret, `svg_` read grant, `svd_` distribution token, `svi_` invitation, `svl_` console
link, `svc_` console session; `whsec_` webhook secret, base64 without a checksum, as in Standard Webhooks.
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
    """The kind of a secret, as its first four characters."""

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
    """A new secret: `value` is shown once, `hash` is stored, and `last4` may be displayed."""

    value: str = field(repr=False)
    hash: bytes = field(repr=False)
    last4: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedSecret:
    """The fields of a stored secret that may be displayed."""

    last4: str
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


def issue(prefix: Prefix) -> Secret:
    """Return a new random secret."""
    body = _base62(int.from_bytes(os.urandom(_RANDOM_BYTES)), _BODY_CHARACTERS)
    return _secret(prefix + body + _checksum(prefix + body))


def derive(prefix: Prefix, key: bytes, purpose: str) -> Secret:
    """Return a secret that is derived from a key for one purpose. Equal arguments return equal secrets."""
    body = _base62(int.from_bytes(hmac.digest(key, purpose.encode(), "sha256")), _BODY_CHARACTERS)
    return _secret(prefix + body + _checksum(prefix + body))


def issue_webhook_secret() -> Secret:
    """Return a new webhook secret: `whsec_` and the base64 of 32 random bytes (Standard Webhooks)."""
    return _secret(WEBHOOK_SECRET_PREFIX + base64.b64encode(os.urandom(_RANDOM_BYTES)).decode())


def is_well_formed(value: str, prefix: Prefix) -> bool:
    """Return whether a value has the format and checksum of a kind of secret; makes no query."""
    # Check the format before any query, so that mistyped and made-up values cost none.
    if len(value) != _LENGTH or not value.startswith(prefix) or _FORM.fullmatch(value) is None:
        return False
    return _checksum(value[:-_CHECKSUM_CHARACTERS]) == value[-_CHECKSUM_CHARACTERS:]


def hash_secret(value: str) -> bytes:
    """Return the SHA-256 of a secret. The database stores secrets and finds them by this hash."""
    # A fast hash is safe for 256 random bits; a slow one would let anonymous clients exhaust the processor. Encode
    # with `surrogatepass`, because a header may contain bytes that are not UTF-8.
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
