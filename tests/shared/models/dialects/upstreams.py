"""The events of upstreams of both dialects for the same reply."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from shared.models.dialects import Dialect

Json = dict[str, Any]
CHAT_USAGE = {
    "prompt_tokens": 11,
    "completion_tokens": 7,
    "total_tokens": 18,
    "prompt_tokens_details": {"cached_tokens": 4},
    "completion_tokens_details": {"reasoning_tokens": 2},
}
RESPONSES_USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 2},
    "total_tokens": 18,
}


@dataclass
class Reply:
    """A reply of the model. Texts and arguments are split as they are streamed."""

    text: Sequence[str] = ()
    refusal: Sequence[str] = ()
    reasoning: Sequence[str] = ()
    calls: Sequence[tuple[str, str, Sequence[str]]] = ()
    finish: str | None = None
    logprobs: Sequence[Json] = field(default_factory=tuple)


def chunk(delta: Json, finish_reason: str | None = None, index: int = 0, **more: Any) -> Json:
    """Make a chat chunk as OpenAI sends it."""
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return {
        "id": "chatcmpl-upstream",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "upstream-model-0613",
        "system_fingerprint": "fp_1",
        "choices": [choice],
        "usage": None,
        **more,
    }


def usage_chunk() -> Json:
    """Make the chunk that reports usage."""
    return {**chunk({}), "choices": [], "usage": CHAT_USAGE}


def chat_chunks(reply: Reply) -> list[Json]:
    """Stream a reply in the chat dialect."""
    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"reasoning_content": piece}) for piece in reply.reasoning]
    for position, piece in enumerate(reply.text):
        said = chunk({"content": piece})
        if reply.logprobs:
            said["choices"][0]["logprobs"] = {"content": [reply.logprobs[position]], "refusal": None}
        chunks.append(said)
    chunks += [chunk({"refusal": piece}) for piece in reply.refusal]
    for index, (call_id, name, pieces) in enumerate(reply.calls):
        opened = {
            "index": index,
            "id": call_id,
            "type": "function",
            "function": {"name": name, "arguments": ""},
        }
        chunks.append(chunk({"tool_calls": [opened]}))
        chunks += [
            chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}) for piece in pieces
        ]
    chunks.append(chunk({}, reply.finish or ("tool_calls" if reply.calls else "stop")))
    return [*chunks, usage_chunk()]


def chat_completion(reply: Reply) -> Json:
    """Return the whole reply in the chat dialect."""
    message: Json = {"role": "assistant", "content": "".join(reply.text) or None, "refusal": None}
    if reply.refusal:
        message["refusal"] = "".join(reply.refusal)
    if reply.reasoning:
        message["reasoning_content"] = "".join(reply.reasoning)
    if reply.calls:
        message["tool_calls"] = [
            {"id": call_id, "type": "function", "function": {"name": name, "arguments": "".join(pieces)}}
            for call_id, name, pieces in reply.calls
        ]
    logprobs = {"content": list(reply.logprobs), "refusal": None} if reply.logprobs else None
    finish_reason = reply.finish or ("tool_calls" if reply.calls else "stop")
    choice = {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish_reason}
    made = {"id": "chatcmpl-upstream", "object": "chat.completion", "created": 1}
    made |= {"model": "upstream-model-0613", "system_fingerprint": "fp_1"}
    return {**made, "choices": [choice], "usage": CHAT_USAGE}


def whole_response(reply: Reply) -> Json:
    """Return the whole reply in the Responses dialect."""
    response: Json = response_events(reply)[-1]["response"]
    return response


def response_events(reply: Reply) -> list[Json]:
    """Stream a reply in the Responses dialect."""
    response = {
        "id": "resp_upstream",
        "object": "response",
        "model": "upstream-model-0613",
        "status": "in_progress",
    }
    events: list[Json] = [{"type": "response.created", "response": {**response, "output": []}}]
    output: list[Json] = []
    if reply.reasoning:
        _add_reasoning(events, output, reply.reasoning)
    if reply.text:
        _add_message(events, output, "output_text", "text", reply)
    if reply.refusal:
        _add_message(events, output, "refusal", "refusal", reply)
    for call in reply.calls:
        _add_call(events, output, *call)
    status = "incomplete" if reply.finish in ("length", "content_filter") else "completed"
    ended: Json = {**response, "status": status, "output": output, "usage": RESPONSES_USAGE}
    if status == "incomplete":
        reason = "max_output_tokens" if reply.finish == "length" else "content_filter"
        ended["incomplete_details"] = {"reason": reason}
    events.append({"type": f"response.{status}", "response": ended})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def events_of(reply: Reply, upstream: Dialect) -> list[Json]:
    """Return the events that an upstream of this dialect streams for a reply."""
    return chat_chunks(reply) if upstream is Dialect.CHAT else response_events(reply)


def _add_reasoning(events: list[Json], output: list[Json], pieces: Sequence[str]) -> None:
    index, item = len(output), {"id": "rs_up", "type": "reasoning", "summary": []}
    place = {"item_id": "rs_up", "output_index": index, "summary_index": 0}
    events.append({"type": "response.output_item.added", "output_index": index, "item": item})
    part = {"type": "summary_text", "text": ""}
    events.append({"type": "response.reasoning_summary_part.added", **place, "part": part})
    events.extend(
        {"type": "response.reasoning_summary_text.delta", **place, "delta": piece} for piece in pieces
    )
    part = {"type": "summary_text", "text": "".join(pieces)}
    events.append({"type": "response.reasoning_summary_text.done", **place, "text": part["text"]})
    events.append({"type": "response.reasoning_summary_part.done", **place, "part": part})
    done = {**item, "summary": [part]}
    events.append({"type": "response.output_item.done", "output_index": index, "item": done})
    output.append(done)


def _add_message(events: list[Json], output: list[Json], kind: str, name: str, reply: Reply) -> None:
    pieces = reply.text if kind == "output_text" else reply.refusal
    index = len(output)
    item = {
        "id": f"msg_{index}",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    place = {"item_id": item["id"], "output_index": index, "content_index": 0}
    extra: Json = {"annotations": []} if kind == "output_text" else {}
    events.append({"type": "response.output_item.added", "output_index": index, "item": item})
    events.append({"type": "response.content_part.added", **place, "part": {"type": kind, name: "", **extra}})
    for position, piece in enumerate(pieces):
        logprobs = (
            {"logprobs": [reply.logprobs[position]]} if reply.logprobs and kind == "output_text" else {}
        )
        events.append({"type": f"response.{kind}.delta", **place, "delta": piece, **logprobs})
    part = {"type": kind, name: "".join(pieces), **extra}
    events.append({"type": f"response.{kind}.done", **place, name: part[name]})
    events.append({"type": "response.content_part.done", **place, "part": part})
    done = {**item, "status": "completed", "content": [part]}
    events.append({"type": "response.output_item.done", "output_index": index, "item": done})
    output.append(done)


def _add_call(events: list[Json], output: list[Json], call_id: str, name: str, pieces: Sequence[str]) -> None:
    index = len(output)
    item = {"id": f"fc_{index}", "type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
    place = {"item_id": item["id"], "output_index": index}
    events.append({"type": "response.output_item.added", "output_index": index, "item": item})
    events.extend(
        {"type": "response.function_call_arguments.delta", **place, "delta": piece} for piece in pieces
    )
    arguments = "".join(pieces)
    events.append(
        {"type": "response.function_call_arguments.done", **place, "name": name, "arguments": arguments}
    )
    done = {**item, "status": "completed", "arguments": arguments}
    events.append({"type": "response.output_item.done", "output_index": index, "item": done})
    output.append(done)
