"""The response scripts of a fake upstream, as the bytes of an OpenAI-compatible server with its quirks."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

DIRECTIVE = "#upstream "
"""A line of the last user text that begins so carries a script as JSON, even through a gateway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A scripted response. `…_after` counts the text chunks sent before an event; None disables it."""

    chunks: int = 3
    piece: str = "token "
    pad_bytes: int = 0
    prompt_tokens: int = 10
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    wait_seconds: float = 0.0
    delay_seconds: float = 0.0
    usage: Literal["own chunk", "finish chunk", "every chunk", "none"] = "own chunk"
    terminator: bool = True
    line_end: Literal["\n", "\r\n", "\r"] = "\n"
    comments: bool = False
    last_blank_line: bool = True
    framing: Literal["chunked", "close", "length"] = "chunked"
    content_type: str = "text/event-stream; charset=utf-8"
    as_document: bool = False
    model: str = "renamed-by-upstream"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None
    raw: str | None = None
    fail_after: int | None = None
    garbage_after: int | None = None
    reset_after: int | None = None
    close_after: int | None = None
    stall_after: int | None = None
    drip_bytes: int = 0
    drip_seconds: float = 0.05

    @property
    def is_plain(self) -> bool:
        """Return whether the whole response can be written at once."""
        return not (self.wait_seconds or self.delay_seconds or self.drip_bytes) and all(
            after is None for after in (self.reset_after, self.close_after, self.stall_after)
        )

    @property
    def halts_at(self) -> int | None:
        """Return the number of chunks after which the response ends, or None."""
        halts = [self.fail_after, self.garbage_after, self.reset_after, self.close_after, self.stall_after]
        return min((after for after in halts if after is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Bytes of a response, the text tokens in them, whether they report usage, and whether they are the last."""

    content: bytes
    tokens: int = 0
    reports: bool = False
    is_complete: bool = False


def script_in(body: Mapping[str, Any]) -> Script | None:
    """Return the script in the last user message, or None."""
    for text in reversed(list(_texts(body))):
        for line in text.split("\n"):
            if line.startswith(DIRECTIVE):
                return script_from(json.loads(line.removeprefix(DIRECTIVE)))
    return None


def script_from(values: Mapping[str, Any]) -> Script:
    """Return a script from JSON; raise for unknown names."""
    unknown = set(values) - {known.name for known in fields(Script)}
    if unknown:
        raise ValueError(f"no such thing in a script: {unknown}")
    return Script(**values)


def answer(script: Script, path: str, *, is_stream: bool) -> Iterator[Written]:
    """Yield a response with its head, in pieces that may be sent separately."""
    if script.raw is not None:
        yield Written(content=script.raw.encode("latin-1"))
        return
    if script.status != 200 or script.body is not None:
        yield Written(content=_head(script, len(_bytes_of(script.body))) + _bytes_of(script.body))
        return
    is_chat = path.endswith("/chat/completions")
    if script.as_document or not is_stream:
        yield _whole(script, is_chat=is_chat)
        return
    yield from _framed(script, _chat(script) if is_chat else _responses(script))


def _whole(script: Script, *, is_chat: bool) -> Written:
    """Return a whole document with its head, truncated where the script demands it."""
    document = json.dumps(_document(script, is_chat=is_chat)).encode()
    length, given = len(document), script.halts_at
    if given is None:
        head = _head(script, length, "application/json")
        return Written(content=head + document, tokens=script.chunks, reports=script.usage != "none")
    if given == script.fail_after:
        document = json.dumps({"error": {"message": "engine fell over", "code": 500}}).encode()
        length = len(document)
    elif given == script.garbage_after:
        document = b"{not json" + b" " * (length - 9)
    else:
        document = document[: length // 2]
    content = _head(script, length, "application/json") + document
    return Written(content=content, tokens=given, is_complete=len(document) == length)


def _framed(script: Script, events: Iterator[Written]) -> Iterator[Written]:
    written = list(events)
    length = sum(len(event.content) for event in written) + (0 if script.halts_at is None else 100)
    yield Written(content=_head(script, length if script.framing == "length" else None))
    for event in written:
        content = event.content
        if script.framing == "chunked":
            content = b"%x\r\n%b\r\n" % (len(content), content)
        yield Written(content=content, tokens=event.tokens, reports=event.reports)
    if script.framing == "chunked":
        yield Written(content=b"0\r\n\r\n")


def _head(script: Script, length: int | None, content_type: str | None = None) -> bytes:
    lines = [f"HTTP/1.1 {script.status} X", f"Content-Type: {content_type or script.content_type}"]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    elif script.framing == "chunked":
        lines.append("Transfer-Encoding: chunked")
    if script.framing == "close":
        lines.append("Connection: close")
    lines += [f"{name}: {value}" for name, value in script.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1")


def _chat(script: Script) -> Iterator[Written]:
    base = {"id": "chatcmpl-upstream", "object": "chat.completion.chunk", "created": 1, "model": script.model}
    pad = {"pad": "x" * script.pad_bytes} if script.pad_bytes else {}

    def chunk(delta: dict[str, Any], finish: str | None = None, tokens: int = 0) -> dict[str, Any]:
        made = {**base, **pad, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
        if script.usage == "every chunk" or (finish and script.usage == "finish chunk"):
            made["usage"] = _chat_usage(script, tokens)
        return made

    yield _event(script, chunk({"role": "assistant", "content": ""}))
    for number in range(script.chunks):
        if number == script.halts_at:
            yield from _halt(script)
            return
        reports = script.usage == "every chunk"
        yield _event(script, chunk({"content": script.piece}, tokens=number + 1), tokens=1, reports=reports)
    finish = chunk({}, "stop", script.chunks)
    has_more = script.terminator or script.usage == "own chunk"
    yield _event(script, finish, reports="usage" in finish, is_last=not has_more)
    if script.usage == "own chunk":
        usage = {**base, "choices": [], "usage": _chat_usage(script, script.chunks)}
        yield _event(script, usage, reports=True, is_last=not script.terminator)
    if script.terminator:
        yield Written(content=f"data: [DONE]{script.line_end * 2}".encode())


def _responses(script: Script) -> Iterator[Written]:
    numbers = iter(range(10**9))

    def event(kind: str, **values: Any) -> Written:
        return _event(script, {"type": kind, "sequence_number": next(numbers), **values}, name=kind)

    begun = {**_document(script, is_chat=False), "status": "in_progress", "output": [], "usage": None}
    where = {"item_id": "msg_upstream", "output_index": 0, "content_index": 0}
    message = {
        "id": "msg_upstream",
        "type": "message",
        "role": "assistant",
        "status": "in_progress",
        "content": [],
    }
    yield event("response.created", response=begun)
    yield event("response.output_item.added", output_index=0, item=message)
    part = {"type": "output_text", "text": "", "annotations": []}
    yield event("response.content_part.added", **where, part=part)
    for number in range(script.chunks):
        if number == script.halts_at:
            yield from _halt(script)
            return
        delta = event("response.output_text.delta", **where, delta=script.piece, logprobs=[])
        yield Written(content=delta.content, tokens=1)
    done = _document(script, is_chat=False)
    item = done["output"][0]
    yield event("response.output_text.done", **where, text=script.piece * script.chunks, logprobs=[])
    yield event("response.content_part.done", **where, part=item["content"][0])
    yield event("response.output_item.done", output_index=0, item=item)
    completed = event("response.completed", response=done)
    yield Written(content=completed.content, reports=script.usage != "none")


def _halt(script: Script) -> Iterator[Written]:
    if script.halts_at == script.fail_after:
        yield _event(script, {"error": {"message": "engine fell over", "type": "server_error", "code": 500}})
    elif script.halts_at == script.garbage_after:
        yield Written(content=f"data: {{not json{script.line_end * 2}".encode())


def _event(
    script: Script,
    value: Mapping[str, Any],
    *,
    name: str | None = None,
    tokens: int = 0,
    reports: bool = False,
    is_last: bool = False,
) -> Written:
    end = script.line_end
    named = f"event: {name}{end}" if name else ""
    comment = f": keep-alive{end}{end}" if script.comments else ""
    text = f"{comment}{named}data: {json.dumps(value, separators=(',', ':'))}"
    blank = "" if is_last and not script.last_blank_line else end * 2
    return Written(content=(text + blank).encode(), tokens=tokens, reports=reports)


def _document(script: Script, *, is_chat: bool) -> dict[str, Any]:
    text = script.piece * script.chunks
    if is_chat:
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        made = {"id": "chatcmpl-upstream", "object": "chat.completion", "created": 1, "model": script.model}
        usage = None if script.usage == "none" else _chat_usage(script, script.chunks)
        return {**made, "choices": [choice], "usage": usage}
    part = {"type": "output_text", "text": text, "annotations": []}
    item = {
        "id": "msg_upstream",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [part],
    }
    return {
        "id": "resp_upstream",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": script.model,
        "output": [item],
        "usage": None if script.usage == "none" else _responses_usage(script),
    }


def _chat_usage(script: Script, completion_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": script.prompt_tokens,
        "prompt_tokens_details": _prompt_details(script),
        "completion_tokens": completion_tokens,
        "completion_tokens_details": {"reasoning_tokens": script.reasoning_tokens},
        "total_tokens": script.prompt_tokens + completion_tokens,
    }


def _responses_usage(script: Script) -> dict[str, Any]:
    return {
        "input_tokens": script.prompt_tokens,
        "input_tokens_details": _prompt_details(script),
        "output_tokens": script.chunks,
        "output_tokens_details": {"reasoning_tokens": script.reasoning_tokens},
        "total_tokens": script.prompt_tokens + script.chunks,
    }


def _prompt_details(script: Script) -> dict[str, int]:
    return {"cached_tokens": script.cached_tokens, "cache_write_tokens": script.cache_write_tokens}


def _bytes_of(body: str | None) -> bytes:
    return (body or "").encode()


def _texts(body: Mapping[str, Any]) -> Iterator[str]:
    given = body.get("messages") or body.get("input") or ()
    if isinstance(given, str):
        yield given
        return
    for item in given:
        content = item.get("content") if isinstance(item, dict) and item.get("role") == "user" else None
        if isinstance(content, str):
            yield content
        for part in content if isinstance(content, list) else ():
            if isinstance(part.get("text"), str):
                yield part["text"]
