"""The deltas of a reply, and their serialization as server-sent events.

A delta is one chunk or event of the client's dialect. Agents read deltas directly. A frame writer serializes them with
LF line ends (Open Responses). JSON is ASCII only, for readers that take U+2028 or U+0085 for a line end, and for
upstreams that split a surrogate pair.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from shared.models.dialects.requests import Dialect, Json

DONE = b"data: [DONE]\n\n"
"""Ends every stream of OpenAI's dialects."""
_COMMENT = b": still working\n\n"
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'
# OpenAI's value for an impossible token.
LEAST_LOG_PROBABILITY = -9999.0

# One encoder for all frames: json.dumps with these options would create one for each.
_write = json.JSONEncoder(
    ensure_ascii=True, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


@dataclass(slots=True, eq=False)  # not frozen: one is made for every chunk, at a third of the cost
class Delta:
    """One chunk of a chat completion, one event of another dialect, or an error; `content` is what clients read."""

    content: Json

    @property
    def text(self) -> str:
        """The text that it adds to the reply (of a chat's first choice)."""
        return self._added_text("content", "response.output_text.delta")

    @property
    def refusal(self) -> str:
        """The text that it adds to the model's refusal."""
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
    """Return the bytes after the last frame of any stream, also a broken one."""
    return b"" if dialect is Dialect.MESSAGES else DONE


def keepalive_comment(dialect: Dialect) -> bytes:
    """Return the bytes to send while no delta arrives."""
    return _PING if dialect is Dialect.MESSAGES else _COMMENT


def write_json(value: Json) -> str:
    """Return one line of JSON. Infinite and NaN numbers, which upstreams send as log probabilities, become finite."""
    # Checking each number beforehand would cost every frame; hardly any frame fails.
    try:
        return _write(value)
    except ValueError:
        return _write(_finite(value))


def _write_chunks(deltas: Sequence[Delta]) -> bytes:
    return "".join([f"data: {write_json(delta.content)}\n\n" for delta in deltas]).encode("ascii")


def _write_events(deltas: Sequence[Delta]) -> bytes:
    """Serialize each event under the name of its `type`."""
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
