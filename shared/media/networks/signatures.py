"""What the networks' signature checks share: secrets that are accepted, constant-time comparison, the replay window.

Whatever a stranger sends in a header is text that may hold anything; nothing here raises but SignatureInvalid.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Iterable, Sequence

from shared.media.networks.base import Credentials, SignatureInvalid, previous

REPLAY_WINDOW_SECONDS = 300
_TIMESTAMP = re.compile(r"[0-9]{1,12}", re.ASCII)


def accepted(credentials: Credentials, name: str) -> Sequence[str]:
    """Give the values of a signing setting that are good now: the current one, and the one it replaced lately."""
    values = (credentials.get(name), credentials.get(previous(name)))
    return [value for value in values if value]


def require_match(sent: str, expected: Iterable[str]) -> None:
    """Raise SignatureInvalid unless what was sent is one of the expected texts, compared in constant time."""
    given = sent.encode("utf-8", "surrogatepass")
    if not any(hmac.compare_digest(given, one.encode()) for one in expected):
        raise SignatureInvalid


def require_recent(timestamp: str, received_at: float) -> None:
    """Raise SignatureInvalid unless a timestamp, in seconds since the epoch, is of these minutes."""
    if not _TIMESTAMP.fullmatch(timestamp) or abs(received_at - int(timestamp)) > REPLAY_WINDOW_SECONDS:
        raise SignatureInvalid


def hmac_sha256(secret: str, signed: bytes) -> str:
    """Give the HMAC-SHA256 of what is signed, in hexadecimal."""
    return hmac.digest(secret.encode(), signed, "sha256").hex()
