"""The reply to a client of Anthropic's dialect: converts chat chunks to Messages events or to one message.

Thoughts are sent only to a client that requested thinking, because other clients expect text in the first block. The
tokens of thoughts always count. The closing events wait for the usage report, which chat upstreams send last.

Clients read content blocks one after another, but upstreams may interleave the arguments of several calls. So a call's
block stays open until a later block has begun and the call's arguments are complete JSON. Until then, the deltas of
later blocks are kept back.
"""

import json
from collections.abc import Callable
from typing import Any

from shared.credits.prices import TokenCounts
from shared.models.dialects.chat_choices import FirstChoiceStream
from shared.models.dialects.deltas import Delta
from shared.models.dialects.failures import Failure, messages_error
from shared.models.dialects.requests import Json, ParsedRequest
from shared.models.dialects.token_counts import estimate_prompt_tokens, messages_usage

_CUT = {"length": "max_tokens", "content_filter": "refusal"}


class MessagesStream(FirstChoiceStream):
    """The reply to one Messages request, from upstream chat chunks."""

    def __init__(self, parsed: ParsedRequest, *, reply_id: str, model_id: str) -> None:
        super().__init__(f"toolu_{reply_id.removeprefix('msg_')}")
        self._parsed = parsed
        self._deltas: list[Delta] = []
        self._head: Json = {"id": reply_id, "type": "message", "role": "assistant", "model": model_id}
        self._blocks = ContentBlocks(self._emit)
        self._shows_thinking = _shows_thinking(parsed.body)
        self._has_started = self._has_refused = False
        self._stop_sequence: str | None = None

    def feed(self, chunk: Json) -> list[Delta]:
        """Read one upstream chunk, or a whole completion. Return the deltas for the client."""
        self._start()
        read = self._follow(chunk)
        if read is not None:
            self._add(read["delta"])
            # Read the matched stop sequence, which vLLM reports in `stop_reason`.
            stopped_at = read.get("stop_reason")
            if stopped_at in (self._parsed.body.get("stop_sequences") or ()):
                self._stop_sequence = stopped_at
        return self._take()

    def finish(self, usage: TokenCounts) -> list[Delta]:
        """End a complete stream: close the open block, then send the stop reason and the usage."""
        self._start()
        self._blocks.close()
        self._emit("message_delta", delta=self._stop(), usage=messages_usage(usage))
        self._emit("message_stop")
        return self._take()

    def fail(self, failure: Failure, _usage: TokenCounts | None) -> list[Delta]:
        """End a broken stream with the error that clients raise."""
        return [Delta(messages_error(failure))] if self._parsed.is_stream else []

    def result(self, usage: TokenCounts) -> Json:
        """Return the whole message of a request without a stream."""
        return {**self._head, "content": self._blocks.write(), **self._stop(), "usage": messages_usage(usage)}

    def _emit(self, type_: str, /, **fields: Any) -> None:
        if self._parsed.is_stream:
            self._deltas.append(Delta({"type": type_, **fields}))

    def _take(self) -> list[Delta]:
        deltas, self._deltas = self._deltas, []
        return deltas

    def _start(self) -> None:
        if self._has_started:
            return
        self._has_started = True
        if self._parsed.is_stream:
            # Send an estimate, because the real counts are known only at the end. Clients read them there.
            expected = TokenCounts(prompt_tokens=estimate_prompt_tokens(self._parsed), completion_tokens=0)
            empty: Json = {"content": [], "stop_reason": None, "stop_sequence": None}
            self._emit("message_start", message={**self._head, **empty, "usage": messages_usage(expected)})

    def _add(self, delta: Json) -> None:
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        if reasoning and self._shows_thinking:
            self._blocks.add_text(THINKING, reasoning)
        for field in ("content", "refusal"):
            if delta.get(field):
                self._blocks.add_text(TEXT, delta[field])
        self._has_refused = self._has_refused or bool(delta.get("refusal"))
        for fragment in delta.get("tool_calls") or ():
            self._blocks.add_call_fragment(fragment)

    def _stop(self) -> Json:
        """Return the stop reason, which may differ from the upstream's: some report `stop` after a tool call."""
        # Check the refusal before the finish reason, because upstreams report a refusal as `stop`.
        if self._has_refused:
            reason = "refusal"
        elif self._choice.finish_reason in _CUT:
            reason = _CUT[self._choice.finish_reason]
        elif self._blocks.has_calls:
            reason = "tool_use"
        else:
            reason = "end_turn" if self._stop_sequence is None else "stop_sequence"
        return {"stop_reason": reason, "stop_sequence": self._stop_sequence}


def _shows_thinking(body: Json) -> bool:
    thinking = body.get("thinking") or {}
    return thinking.get("type", "disabled") != "disabled" and thinking.get("display") != "omitted"


Emit = Callable[..., None]
TEXT, THINKING, TOOL_USE = "text", "thinking", "tool_use"
INVALID_JSON = "INVALID_JSON"
"""The key under which Anthropic's clients store the arguments of a call that are not JSON."""
# For each type of block: the type of the block's deltas, and the field of a delta with the text.
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
        """Whether this block cannot receive more text after another block has begun."""
        return self.type != TOOL_USE or (
            # Test the last character first: parsing the arguments after each fragment would take quadratic time.
            self.text.rstrip().endswith("}") and isinstance(_parsed(self.text), dict)
        )

    def write(self) -> Json:
        if self.type == TOOL_USE:
            return {**self.opened, "input": _input(self.text)}
        return {**self.opened, self.type: self.text}


class ContentBlocks:
    """The blocks of one message. `emit` receives the events."""

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
        """Append text to the last block if the block has this type, else open a new block."""
        if not self._blocks or self._blocks[-1].type != type_:
            self._add(_Block(dict(_OPENED[type_])))
        self._write(self._blocks[-1], text)

    def add_call_fragment(self, fragment: Json) -> None:
        """Add a fragment of a call in the normalized form that `ToolCalls.read` returns."""
        called = fragment.get("function") or fragment.get("custom") or {}
        if fragment["index"] == len(self._calls):
            opened = {"type": TOOL_USE, "id": fragment["id"], "name": called["name"], "input": {}}
            self._calls.append(_Block(opened))
            self._add(self._calls[-1])
        elif "name" in called:
            self._calls[fragment["index"]].opened["name"] += called["name"]
        self._write(self._calls[fragment["index"]], called.get("arguments") or called.get("input") or "")

    def close(self) -> None:
        """Send the remaining deltas and close every block."""
        while self._live < len(self._blocks):
            self._stop()

    def write(self) -> list[Json]:
        """Return the content of the whole message."""
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
        """Close the open block if the block is complete and a later block waits."""
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
    """Parse the arguments of a call. If there are no arguments, return an empty object."""
    if not text.strip():
        return {}
    parsed = _parsed(text)
    return parsed if isinstance(parsed, dict) else {INVALID_JSON: text}
