"""A scripted reply as the chunks of a chat completion, in the order in which OpenAI sends them, or as one document."""

from collections.abc import Iterator, Mapping
from typing import Any

from shared.models.providers.base import Event
from shared.models.providers.script import Script

ScriptedEvent = tuple[Event, bool]
"""An event, and whether it is a piece of the text."""
_BASE = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": "script"}


def chat_events(script: Script, body: Mapping[str, Any]) -> Iterator[ScriptedEvent]:
    """Write the chunks: role, reasoning, text, tool calls, finish reason, usage."""
    choices = range(body.get("n") or 1)
    for index in choices:
        yield _chunk(index, {"role": "assistant", "content": ""}), False
    if script.reasoning:
        for index in choices:
            yield _chunk(index, {"reasoning_content": script.reasoning}), False
    field = "refusal" if script.is_refusal else "content"
    for piece in script.pieces:
        for index in choices:
            logprobs = _logprobs(piece) if body.get("logprobs") else None
            yield _chunk(index, {field: piece}, logprobs=logprobs), index == 0
    for index in choices:
        yield from ((event, False) for event in _tool_calls(index, script))
    for index in choices:
        yield _chunk(index, {}, finish_reason=_finish_reason(script)), False
    if script.reports_usage and (body.get("stream_options") or {}).get("include_usage"):
        yield {**_BASE, "choices": [], "usage": _usage(script, len(choices))}, False


def chat_completion(script: Script, body: Mapping[str, Any]) -> Event:
    """Write the whole reply as one document."""
    message: Event = {"role": "assistant", "content": None, "refusal": None}
    if script.pieces:
        message["refusal" if script.is_refusal else "content"] = "".join(script.pieces)
    if script.reasoning:
        message["reasoning_content"] = script.reasoning
    if script.tool_calls:
        message["tool_calls"] = [
            {
                "id": f"call_scripted_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for number, call in enumerate(script.tool_calls)
        ]
    tokens = [token for piece in script.pieces for token in _logprobs(piece)["content"]]
    logprobs = {"content": tokens, "refusal": None} if body.get("logprobs") else None
    choice = {"message": message, "logprobs": logprobs, "finish_reason": _finish_reason(script)}
    choices = [{"index": index, **choice} for index in range(body.get("n") or 1)]
    usage = {"usage": _usage(script, len(choices))} if script.reports_usage else {}
    return {**_BASE, "object": "chat.completion", "choices": choices, **usage}


def chat_failure() -> Event:
    """Write an error in the middle of a stream, or in place of a reply, as OpenRouter and vLLM do."""
    return {
        "error": {"message": "The script says to fail.", "type": "server_error", "code": "scripted_failure"}
    }


def _chunk(
    index: int, delta: Event, *, finish_reason: str | None = None, logprobs: Event | None = None
) -> Event:
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
    return {**_BASE, "choices": [choice]}


def _tool_calls(index: int, script: Script) -> Iterator[Event]:
    """Send each call's name first and its arguments in two halves, as real upstreams cut them anywhere."""
    for number, call in enumerate(script.tool_calls):
        function = {"name": call.name, "arguments": ""}
        head = {"index": number, "id": f"call_scripted_{number}", "type": "function", "function": function}
        yield _chunk(index, {"tool_calls": [head]})
        middle = len(call.arguments) // 2
        for half in (call.arguments[:middle], call.arguments[middle:]):
            yield _chunk(index, {"tool_calls": [{"index": number, "function": {"arguments": half}}]})


def _finish_reason(script: Script) -> str:
    if script.is_truncated:
        return "length"
    return "tool_calls" if script.tool_calls else "stop"


def _logprobs(piece: str) -> Event:
    token = {"token": piece, "logprob": -0.25, "bytes": list(piece.encode()), "top_logprobs": []}
    return {"content": [token], "refusal": None}


def _usage(script: Script, choices: int) -> Event:
    completion = script.completion_tokens * choices
    return {
        "prompt_tokens": script.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": script.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": script.reasoning_tokens * choices},
    }
