"""Server-sent events as bytes: one complete event in one object, LF line ends (Open Responses asks for both).

JSON is written in ASCII. It costs bytes for other scripts, and saves readers that take U+2028 or U+0085 for a line's
end, as several popular ones do, and upstreams that cut a surrogate pair in two.
"""

from __future__ import annotations

import json
import math
from typing import Any

from shared.models.dialects.requests import Json

DONE = b"data: [DONE]\n\n"
LEAST_LOG_PROBABILITY = -9999.0  # what OpenAI writes for a token that cannot be

# A standing encoder: json.dumps with these options would build one for every frame.
_write = json.JSONEncoder(
    ensure_ascii=True, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


def write_json(value: Json) -> str:
    """Write one line of JSON. Numbers that JSON lacks, as upstreams send for log probabilities, become finite."""
    try:
        return _write(value)
    except ValueError:
        return _write(_finite(value))


def chat_frame(chunk: Json) -> bytes:
    """Frame one chat chunk, or an error object."""
    return b"data: " + write_json(chunk).encode("ascii") + b"\n\n"


def event_frame(event: Json) -> bytes:
    """Frame one Responses event under the name that its `type` says."""
    return f"event: {event['type']}\ndata: {write_json(event)}\n\n".encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(element) for name, element in value.items()}
    if isinstance(value, list):
        return [_finite(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return LEAST_LOG_PROBABILITY
    return value
