"""The content of a message while it grows: one block is told at a time, from its start through its deltas to its stop.

Upstreams may weave the arguments of several calls; clients read blocks one after another. So a call is told until a
later block has begun and its own arguments are whole, and what comes for later blocks waits until then.
"""

import json
from collections.abc import Callable
from typing import Any

from shared.models.dialects.requests import Json

Emit = Callable[..., None]
TEXT, THINKING, TOOL_USE = "text", "thinking", "tool_use"
INVALID_JSON = "INVALID_JSON"
"""Where Anthropic's clients put arguments that are not JSON."""
# Block type: its delta's type, the delta's field.
_DELTAS = {
    TEXT: ("text_delta", "text"),
    THINKING: ("thinking_delta", "thinking"),
    TOOL_USE: ("input_json_delta", "partial_json"),
}
_OPENED: dict[str, Json] = {
    TEXT: {"type": TEXT, "text": ""},
    THINKING: {"type": THINKING, "thinking": "", "signature": ""},
}


class _Block:
    __slots__ = ("opened", "pieces", "sent_pieces", "type")

    def __init__(self, opened: Json) -> None:
        self.type: str = opened["type"]
        self.opened = opened
        self.pieces: list[str] = []
        self.sent_pieces = 0

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    @property
    def is_complete(self) -> bool:
        """Whether nothing more can come for it once another block has begun."""
        return self.type != TOOL_USE or (
            self.text.rstrip().endswith("}") and isinstance(_parsed(self.text), dict)
        )

    def write(self) -> Json:
        if self.type == TOOL_USE:
            return {**self.opened, "input": _input(self.text)}
        return {**self.opened, self.type: self.text}


class ContentBlocks:
    """The blocks of one message; `emit` is told the events."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._blocks: list[_Block] = []
        self._calls: list[_Block] = []
        self._live = -1

    @property
    def has_calls(self) -> bool:
        """Whether the model called a tool."""
        return bool(self._calls)

    def add_text(self, type_: str, text: str) -> None:
        """Add to the text or to the thoughts that come last, or begin some."""
        if not self._blocks or self._blocks[-1].type != type_:
            self._add(_Block(dict(_OPENED[type_])))
        self._write(self._blocks[-1], text)

    def add_call_fragment(self, fragment: Json) -> None:
        """Add a fragment of a call, as `ToolCalls` reads it."""
        called = fragment.get("function") or fragment.get("custom") or {}
        if fragment["index"] == len(self._calls):
            opened = {"type": TOOL_USE, "id": fragment["id"], "name": called["name"], "input": {}}
            self._calls.append(_Block(opened))
            self._add(self._calls[-1])
        elif "name" in called:
            self._calls[fragment["index"]].opened["name"] += called["name"]
        self._write(self._calls[fragment["index"]], called.get("arguments") or called.get("input") or "")

    def close(self) -> None:
        """Tell what waits, and stop every block."""
        while self._live < len(self._blocks):
            self._stop()

    def write(self) -> list[Json]:
        """Write the content of the whole message."""
        return [block.write() for block in self._blocks]

    def _add(self, block: _Block) -> None:
        self._blocks.append(block)
        self._advance()

    def _write(self, block: _Block, text: str) -> None:
        if not text:
            return
        block.pieces.append(text)
        if self._blocks[self._live] is block:
            self._send(block)
            self._advance()

    def _advance(self) -> None:
        """Stop the block that is told once it is whole and another waits."""
        while self._live < len(self._blocks) - 1 and (self._live < 0 or self._blocks[self._live].is_complete):
            self._stop()

    def _stop(self) -> None:
        if self._live >= 0:
            self._emit("content_block_stop", index=self._live)
        self._live += 1
        if self._live < len(self._blocks):
            block = self._blocks[self._live]
            self._emit("content_block_start", index=self._live, content_block=dict(block.opened))
            self._send(block)

    def _send(self, block: _Block) -> None:
        text = "".join(block.pieces[block.sent_pieces :])
        block.sent_pieces = len(block.pieces)
        if text:
            type_, field = _DELTAS[block.type]
            self._emit("content_block_delta", index=self._live, delta={"type": type_, field: text})


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _input(text: str) -> Json:
    """Read the arguments of a call; a tool called without any was called with none."""
    if not text.strip():
        return {}
    parsed = _parsed(text)
    return parsed if isinstance(parsed, dict) else {INVALID_JSON: text}
