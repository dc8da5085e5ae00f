"""Verify what a distribution signs with its webhook secret, as Standard Webhooks defines it.

`webhook-signature` holds one or more `v1,` and the base64 of an HMAC-SHA256 over id, timestamp and body as they came.
Any of the distribution's secrets may have made it, for a rotation takes time. Whatever is wrong, the stranger hears
the same 401: a missing header, one that is not base64, a clock that is off by more than five minutes.
"""

import base64
import binascii
import hmac
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from werkzeug.datastructures import Headers

from shared.identity.webhook_secrets import sign
from shared.media.networks.webhooks import SignatureInvalid

ID_HEADER = "webhook-id"
TIMESTAMP_HEADER = "webhook-timestamp"
SIGNATURE_HEADER = "webhook-signature"
TOLERANCE_SECONDS = 300
MAXIMUM_SIGNATURES = 16

_ID = re.compile(r"[\x21-\x7e]{1,255}")
_TIMESTAMP = re.compile(r"[1-9][0-9]{0,11}", re.ASCII)
_VERSION = "v1,"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """The three headers of a signed request, read but not yet verified."""

    id: str
    timestamp: str
    signatures: tuple[bytes, ...]


def read_signature(headers: Headers, now: float) -> Signature:
    """Read the headers of a request that came at `now`, in seconds since 1970. Raises SignatureInvalid."""
    webhook_id, timestamp, sent = (
        _single(headers, name) for name in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER)
    )
    if not _ID.fullmatch(webhook_id) or not _TIMESTAMP.fullmatch(timestamp):
        raise SignatureInvalid
    if abs(now - int(timestamp)) > TOLERANCE_SECONDS:
        raise SignatureInvalid
    candidates = sent.split(" ")
    signatures = tuple(_decoded(at.removeprefix(_VERSION)) for at in candidates if at.startswith(_VERSION))
    if not signatures or len(candidates) > MAXIMUM_SIGNATURES:
        raise SignatureInvalid
    return Signature(id=webhook_id, timestamp=timestamp, signatures=signatures)


def verify_signature(signature: Signature, body: bytes, secrets: Sequence[str]) -> None:
    """Raise SignatureInvalid unless one of the secrets signed this body."""
    expected = [
        sign(secret, message_id=signature.id, timestamp=signature.timestamp, body=body) for secret in secrets
    ]
    if not _any_equal(expected, signature.signatures):
        raise SignatureInvalid


def _any_equal(expected: Iterable[bytes], sent: Sequence[bytes]) -> bool:
    """Compare each with each, in a time that tells nothing of where they differ."""
    found = [hmac.compare_digest(one, other) for one in expected for other in sent]
    return any(found)


def _single(headers: Headers, name: str) -> str:
    values = headers.getlist(name)
    if len(values) != 1:
        raise SignatureInvalid
    value: str = values[0]
    return value


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""
