"""Remove the operators' keys, accounts and addresses from an upstream's error text before callers see the text.

Upstreams repeat such values in their errors. Used for refused requests and for failures inside a stream.
"""

import re

from shared.observability.telemetry import redact

REMOVED = "[removed]"
MAXIMUM_CHARACTERS = 8000
_ADDRESS = re.compile(
    r"\b[a-z][a-z0-9+.-]{1,20}://[^\s\"'<>]+"
    r"|\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"
    r"|\b(?:localhost|[a-z0-9-]+(?:\.[a-z0-9-]+)*\.(?:internal|local|svc))(?::\d{1,5})?\b",
    re.IGNORECASE,
)
_KEY = re.compile(
    r"\b(?:sk|pk|rk|org|proj|key|gsk|xai|hf)[-_][A-Za-z0-9*._-]{6,}"
    r"|\bAIza[\w-]{10,}"
    r"|\b(?:[Kk]ey|Bearer|Basic)\s+[\"'`]?(?=\S*[\d*])[A-Za-z0-9*._/+=-]{6,}"
    r"|\b(?i:api[-_ ]?key|authorization|password|secret)[\"']?\s*[:=]\s*[\"']?[^\s\"',;]{4,}"
)


def disclose(text: str) -> str:
    """Return an upstream's text with secrets and addresses replaced by `REMOVED`."""
    return _KEY.sub(REMOVED, _ADDRESS.sub(REMOVED, redact(text[:MAXIMUM_CHARACTERS])))
