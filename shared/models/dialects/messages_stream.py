"""Chat chunks in, Messages events or one message out: the reply to a client that speaks Anthropic's dialect.

Thoughts are shown to a client that asked for thinking, and only counted for others: who did not ask looks for text in
the first block. The closing events wait for the usage report, which chat sends last.
"""

from typing import Any

from shared.credits.prices import TokenCounts
from shared.models.dialects.deltas import Delta
from shared.models.dialects.failures import Failure, messages_error
from shared.models.dialects.first_choice import FirstChoiceStream
from shared.models.dialects.messages_blocks import TEXT, THINKING, ContentBlocks
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
        """Take one upstream chunk, or a whole completion; give the deltas it makes."""
        self._start()
        read = self._follow(chunk)
        if read is not None:
            self._add(read["delta"])
            stopped_at = read.get("stop_reason")  # vLLM's word for it
            if stopped_at in (self._parsed.body.get("stop_sequences") or ()):
                self._stop_sequence = stopped_at
        return self._take()

    def finish(self, usage: TokenCounts) -> list[Delta]:
        """End a complete stream: stop what is open, then the reason and the usage."""
        self._start()
        self._blocks.close()
        self._emit("message_delta", delta=self._stop(), usage=messages_usage(usage))
        self._emit("message_stop")
        return self._take()

    def fail(self, failure: Failure, _usage: TokenCounts | None) -> list[Delta]:
        """End a broken stream with the error that clients raise."""
        return [Delta(messages_error(failure))] if self._parsed.is_stream else []

    def result(self, usage: TokenCounts) -> Json:
        """Write the whole message of a request that is no stream."""
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
            # What was really used is known at the end, where clients take it from again.
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
        """Say why the model stopped; some upstreams say `stop` although it called a tool."""
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
