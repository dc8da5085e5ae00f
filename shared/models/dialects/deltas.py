"""The deltas of a reply, and their serialization as server-sent events.

A delta is one chunk or event of the client's dialect. Agents read deltas directly. For other clients, a frame writer
serializes deltas with LF line ends, as Open Responses requires. JSON is written in ASCII for two reasons: some readers
take U+2028 or U+0085 for a line end, and some upstreams split a surrogate pair over two chunks.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.models.dialects.requests import Dialect, Json

DONE = b"data: [DONE]\n\n"
"""The last frame of every stream of OpenAI's dialects."""
_COMMENT = b": still working\n\n"
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
# OpenAI's value for the log probability of an impossible token.
LEAST_LOG_PROBABILITY = -9999.0

# Use one encoder for all frames: `json.dumps` with these options would create an encoder for each frame.
_write = json.JSONEncoder(
    ensure_ascii=True, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


# Not frozen, because creating a frozen instance for every chunk takes three times as long.
@dataclass(slots=True, eq=False)
class Delta:
    """One chunk of a chat completion, one event of another dialect, or an error. `content` is sent to the client."""

    content: Json

    @property
    def text(self) -> str:
        """The text that this delta adds to the reply (for chat: to the first choice)."""
        return self._added_text("content", "response.output_text.delta")

    @property
    def refusal(self) -> str:
        """The text that this delta adds to the model's refusal."""
        return self._added_text("refusal", "response.refusal.delta")

    def _added_text(self, field: str, type_: str) -> str:
        if "type" in self.content:
            return str(self.content["delta"]) if self.content["type"] == type_ else ""
        choices = self.content.get("choices")
        return (choices[0]["delta"].get(field) or "") if choices else ""


FrameWriter = Callable[[Sequence[Delta]], bytes]


def frame_writer(dialect: Dialect) -> FrameWriter:
    """Return the function that serializes deltas of a dialect as server-sent events."""
    return _write_chunks if dialect is Dialect.CHAT else _write_events


def end_of_stream(dialect: Dialect) -> bytes:
    """Return the bytes that end any stream of a dialect, even a broken stream."""
    return b"" if dialect is Dialect.MESSAGES else DONE


def keepalive_comment(dialect: Dialect) -> bytes:
    """Return the bytes to send while no delta arrives."""
    return _PING if dialect is Dialect.MESSAGES else _COMMENT


def write_json(value: Json) -> str:
    """Return one line of JSON. Infinite and NaN numbers, which upstreams send as log probabilities, become finite."""
    # Replace numbers only after a failure: hardly any frame fails, and a check beforehand would slow down every frame.
    try:
        return _write(value)
    except ValueError:
        return _write(_finite(value))


def _write_chunks(deltas: Sequence[Delta]) -> bytes:
    return "".join([f"data: {write_json(delta.content)}\n\n" for delta in deltas]).encode("ascii")


def _write_events(deltas: Sequence[Delta]) -> bytes:
    """Serialize each event as a frame that is named by the event's `type`."""
    return "".join(
        [f"event: {delta.content['type']}\ndata: {write_json(delta.content)}\n\n" for delta in deltas]
    ).encode("ascii")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(element) for name, element in value.items()}
    if isinstance(value, list):
        return [_finite(element) for element in value]
    if isinstance(value, float) and not math.isfinite(value):
        return LEAST_LOG_PROBABILITY
    return value
