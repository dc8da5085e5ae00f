"""A scripted reply as chat completion chunks or Responses events, in OpenAI's order, or as one document."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from shared.models.providers.base import Event
from shared.models.providers.script import Script, ToolCall

ScriptedEvent = tuple[Event, bool]
"""An event, and whether the event contains a piece of the reply's text."""
_BASE = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 0, "model": "script"}


def chat_events(script: Script, body: Mapping[str, Any]) -> Iterator[ScriptedEvent]:
    """Yield the chunks: role, reasoning, text, tool calls, finish reason, usage."""
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
        yield {**_BASE, "choices": [], "usage": _chat_usage(script, len(choices))}, False


def chat_completion(script: Script, body: Mapping[str, Any]) -> Event:
    """Return the whole reply as one document."""
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
    usage = {"usage": _chat_usage(script, len(choices))} if script.reports_usage else {}
    return {**_BASE, "object": "chat.completion", "choices": choices, **usage}


def chat_failure() -> Event:
    """Return an error in the form that OpenRouter and vLLM use inside a stream, or instead of a reply."""
    return {
        "error": {"message": "The script says to fail.", "type": "server_error", "code": "scripted_failure"}
    }


def _chunk(
    index: int, delta: Event, *, finish_reason: str | None = None, logprobs: Event | None = None
) -> Event:
    choice = {"index": index, "delta": delta, "finish_reason": finish_reason, "logprobs": logprobs}
    return {**_BASE, "choices": [choice]}


def _tool_calls(index: int, script: Script) -> Iterator[Event]:
    """Yield each call's name, then its arguments in two halves, because real upstreams split arguments anywhere."""
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


def _chat_usage(script: Script, choices: int) -> Event:
    completion = script.completion_tokens * choices
    return {
        "prompt_tokens": script.prompt_tokens,
        "completion_tokens": completion,
        "total_tokens": script.prompt_tokens + completion,
        "prompt_tokens_details": {"cached_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": script.reasoning_tokens * choices},
    }


def response_events(script: Script, body: Mapping[str, Any]) -> Iterator[ScriptedEvent]:
    """Yield the events: `created`, the events of each output item from `added` to `done`, then the final event."""
    for number, (event, is_piece) in enumerate(_events(script, body)):
        yield {**event, "sequence_number": number}, is_piece


def failure_of_response(script: Script, given: int) -> Event:
    """Return the final event of a response that failed after `given` text pieces, with the usage so far."""
    response = _response({}, "failed")
    response["error"] = {"code": "server_error", "message": "The script says to fail."}
    if script.reports_usage:
        response["usage"] = _response_usage(script, given)
    return {"type": "response.failed", "sequence_number": 1_000_000, "response": response}


def _events(script: Script, body: Mapping[str, Any]) -> Iterator[ScriptedEvent]:
    yield {"type": "response.created", "response": _response(body, "in_progress")}, False
    yield {"type": "response.in_progress", "response": _response(body, "in_progress")}, False
    output: list[Event] = []
    if script.reasoning:
        yield from _whole_item(_reasoning(script.reasoning), output)
    if script.pieces:
        yield from _message(script, output)
    for number, call in enumerate(script.tool_calls):
        yield from _function_call(call, number, output)
    status = "incomplete" if script.is_truncated else "completed"
    final = _response(body, status)
    final["output"] = output
    final["incomplete_details"] = {"reason": "max_output_tokens"} if script.is_truncated else None
    if script.reports_usage:
        final["usage"] = _response_usage(script, script.completion_tokens)
    yield {"type": f"response.{status}", "response": final}, False


def _whole_item(item: Event, output: list[Event]) -> Iterator[ScriptedEvent]:
    where = {"output_index": len(output)}
    yield {"type": "response.output_item.added", **where, "item": item}, False
    yield {"type": "response.output_item.done", **where, "item": item}, False
    output.append(item)


def _message(script: Script, output: list[Event]) -> Iterator[ScriptedEvent]:
    kind = "refusal" if script.is_refusal else "output_text"
    item = {"id": "msg_scripted", "type": "message", "role": "assistant"}
    where = {"item_id": item["id"], "output_index": len(output), "content_index": 0}
    part_of: Callable[[str], Event] = _refusal_part if script.is_refusal else _text_part
    opened = {**item, "status": "in_progress", "content": []}
    yield {"type": "response.output_item.added", "output_index": len(output), "item": opened}, False
    yield {"type": "response.content_part.added", **where, "part": part_of("")}, False
    extra: Event = {} if script.is_refusal else {"logprobs": []}
    for piece in script.pieces:
        yield {"type": f"response.{kind}.delta", **where, "delta": piece, **extra}, True
    whole = "refusal" if script.is_refusal else "text"
    yield {"type": f"response.{kind}.done", **where, whole: script.text, **extra}, False
    yield {"type": "response.content_part.done", **where, "part": part_of(script.text)}, False
    status = "incomplete" if script.is_truncated else "completed"
    done = {**item, "status": status, "content": [part_of(script.text)]}
    yield {"type": "response.output_item.done", "output_index": len(output), "item": done}, False
    output.append(done)


def _function_call(call: ToolCall, number: int, output: list[Event]) -> Iterator[ScriptedEvent]:
    item = {
        "id": f"fc_scripted_{number}",
        "type": "function_call",
        "call_id": f"call_scripted_{number}",
        "name": call.name,
    }
    where = {"item_id": item["id"], "output_index": len(output)}
    opened = {**item, "arguments": "", "status": "in_progress"}
    yield {"type": "response.output_item.added", "output_index": len(output), "item": opened}, False
    middle = len(call.arguments) // 2
    for half in (call.arguments[:middle], call.arguments[middle:]):
        yield {"type": "response.function_call_arguments.delta", **where, "delta": half}, False
    yield {"type": "response.function_call_arguments.done", **where, "arguments": call.arguments}, False
    done = {**item, "arguments": call.arguments, "status": "completed"}
    yield {"type": "response.output_item.done", "output_index": len(output), "item": done}, False
    output.append(done)


def _reasoning(text: str) -> Event:
    return {"id": "rs_scripted", "type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def _text_part(text: str) -> Event:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _refusal_part(text: str) -> Event:
    return {"type": "refusal", "refusal": text}


def _response(body: Mapping[str, Any], status: str) -> Event:
    """Return the response object, with the request's settings or, where the request has none, OpenAI's defaults."""
    return {
        "id": "resp_scripted",
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": body.get("instructions"),
        "max_output_tokens": body.get("max_output_tokens"),
        "metadata": body.get("metadata") or {},
        "model": "script",
        "output": [],
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "previous_response_id": None,
        "reasoning": body.get("reasoning") or {"effort": None, "summary": None},
        "store": False,
        "temperature": body.get("temperature", 1.0),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "truncation": body.get("truncation", "disabled"),
        "usage": None,
    }


def _response_usage(script: Script, completion_tokens: int) -> Event:
    return {
        "input_tokens": script.prompt_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": completion_tokens,
        "output_tokens_details": {"reasoning_tokens": script.reasoning_tokens},
        "total_tokens": script.prompt_tokens + completion_tokens,
    }
