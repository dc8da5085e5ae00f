"""Read `Prefer` (RFC 7240): whether, and how long, a client waits for its write to be placed."""

import re
from dataclasses import dataclass

_WAIT = re.compile(r'wait\s*=\s*"?(\d{1,6})"?', re.IGNORECASE | re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """How a client wants to be answered."""

    responds_async: bool
    wait_seconds: float
    applied: str | None


def read_preference(header: str | None, *, longest_wait_seconds: float) -> Preference:
    """Read the header; what is not understood is ignored, and no wait is longer than the service's own."""
    tokens = [token.partition(";")[0].strip() for token in (header or "").split(",")]
    if any(token.lower() == "respond-async" for token in tokens):
        return Preference(responds_async=True, wait_seconds=0, applied="respond-async")
    for token in tokens:
        match = _WAIT.fullmatch(token)
        if match:
            wait = min(float(match[1]), longest_wait_seconds)
            return Preference(responds_async=False, wait_seconds=wait, applied=f"wait={wait:g}")
    return Preference(responds_async=False, wait_seconds=longest_wait_seconds, applied=None)
