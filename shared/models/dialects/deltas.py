"""What a reply says, piece by piece: the deltas that a translator yields, and the frames that they become.

A delta is one chunk or event of the client's dialect. Agents read it as it is; a frame writer makes server-sent
events of it, with LF line ends (Open Responses). JSON is written in ASCII, for readers that take U+2028 or U+0085 for
a line's end, and for upstreams that cut a surrogate pair in two.
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
LEAST_LOG_PROBABILITY = -9999.0  # what OpenAI writes for a token that cannot be

# A standing encoder: json.dumps with these options would build one for every frame.
_write = json.JSONEncoder(
    ensure_ascii=True, check_circular=False, allow_nan=False, separators=(",", ":")
).encode


@dataclass(slots=True, eq=False)  # not frozen: one is made for every chunk, at a third of the cost
class Delta:
    """One chunk of a chat completion, one event of another dialect, or an error; `content` is what clients read."""

    content: Json

    @property
    def text(self) -> str:
        """What it adds to the text of the reply (of a chat's first choice)."""
        return self._added_text("content", "response.output_text.delta")

    @property
    def refusal(self) -> str:
        """What it adds to the words with which the model refuses to answer."""
        return self._added_text("refusal", "response.refusal.delta")

    def _added_text(self, field: str, type_: str) -> str:
        if "type" in self.content:
            return str(self.content["delta"]) if self.content["type"] == type_ else ""
        choices = self.content.get("choices")
        return (choices[0]["delta"].get(field) or "") if choices else ""


FrameWriter = Callable[[Sequence[Delta]], bytes]


def frame_writer(dialect: Dialect) -> FrameWriter:
    """Give what writes the deltas of a dialect as server-sent events."""
    return _write_chunks if dialect is Dialect.CHAT else _write_events


def end_of_stream(dialect: Dialect) -> bytes:
    """Give what follows the last frame of a stream, a broken one too."""
    return b"" if dialect is Dialect.MESSAGES else DONE


def keepalive_comment(dialect: Dialect) -> bytes:
    """Give what a client is sent while nothing comes."""
    return _PING if dialect is Dialect.MESSAGES else _COMMENT


def write_json(value: Json) -> str:
    """Write one line of JSON. Numbers that JSON lacks, as upstreams send for log probabilities, become finite."""
    try:
        return _write(value)
    except ValueError:
        return _write(_finite(value))


def _write_chunks(deltas: Sequence[Delta]) -> bytes:
    return "".join([f"data: {write_json(delta.content)}\n\n" for delta in deltas]).encode("ascii")


def _write_events(deltas: Sequence[Delta]) -> bytes:
    """Write each event under the name that its `type` says."""
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
