"""One call to a model as its client sees it: the request, and the response, which is all the client may rely on.

Each call has a unique number, which the upstream reports as the prompt's tokens. The client, the upstream and the
ledger identify the call by it, also if a response was lost.
"""

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from tests.support.models.upstream_scripts import DIRECTIVE

PIECE = "abc "
"""Four bytes, which an estimate counts as one token."""
TIMEOUT_SECONDS = 60.0
SLOW_READ_BYTES = 4096
SLOW_BYTES_PER_SECOND = 100_000
_TERMINAL_TYPES = ("response.completed", "response.failed", "response.incomplete", "error")


class Manner(StrEnum):
    """How a client makes a call: blocking, streamed, slow, or abandoned."""

    WHOLE = "whole"
    STREAMED = "streamed"
    SLOW = "streamed slowly"
    LEFT = "left in the middle"
    ABANDONED = "abandoned"


class Verdict(StrEnum):
    """What a client knows of a call in the end."""

    COMPLETED = "completed"
    REFUSED = "refused"
    """An error that invites to try again: nothing may have been consumed."""
    FAILED = "failed"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class PlannedCall:
    """A call to make; `script` controls its upstream."""

    number: int
    model: str
    is_chat: bool
    manner: Manner
    script: dict[str, Any]

    @property
    def chunks(self) -> int:
        """Return the number of text chunks of a complete reply."""
        return int(self.script["chunks"])

    def prompt(self) -> str:
        """Return the prompt that makes the upstream follow the script."""
        return DIRECTIVE + json.dumps({"piece": PIECE, "prompt_tokens": self.number, **self.script})

    def request(self) -> tuple[str, bytes]:
        """Return the path and the body."""
        text = self.prompt()
        body: dict[str, Any] = {"model": self.model, "stream": self.manner in _STREAMING}
        if not self.is_chat:
            body |= {"input": text, "store": False, "max_output_tokens": self.chunks}
            return "/v1/responses", json.dumps(body).encode()
        body |= {"messages": [{"role": "user", "content": text}], "max_completion_tokens": self.chunks}
        if body["stream"]:
            body["stream_options"] = {"include_usage": True}
        return "/v1/chat/completions", json.dumps(body).encode()


_STREAMING = (Manner.STREAMED, Manner.SLOW, Manner.LEFT)


@dataclass(kw_only=True)
class CallResult:
    """What a client received for a call; tokens and text are those of a complete reply."""

    verdict: Verdict = Verdict.UNKNOWN
    status: int | None = None
    code: str | None = None
    error: Mapping[str, Any] = field(default_factory=dict)
    invocation_id: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    text: str = ""
    faults: list[str] = field(default_factory=list)


def make_call(
    front: str,
    credential: str,
    planned_call: PlannedCall,
    *,
    max_wait_seconds: float,
    headers: Mapping[str, str] | None = None,
) -> CallResult:
    """Make a call in its manner. A client that abandons the call does so after `max_wait_seconds`."""
    result = CallResult()
    sent = {"Authorization": f"Bearer {credential}", "Content-Type": "application/json", **(headers or {})}
    try:
        with _connected(front, planned_call) as connection:
            path, body = planned_call.request()
            connection.request("POST", path, body, sent)
            if planned_call.manner is Manner.ABANDONED:
                time.sleep(max_wait_seconds)
            else:
                _listen(result, connection.getresponse(), planned_call)
    except (OSError, http.client.HTTPException):
        result.verdict = Verdict.UNKNOWN  # Ignore earlier statuses: the last one decides.
    return result


def _listen(result: CallResult, answer: http.client.HTTPResponse, planned_call: PlannedCall) -> None:
    result.status = answer.status
    # The proxy sent its own error page, so the web process's response is unknown.
    if answer.headers.get_content_type() == "text/html":
        result.verdict = Verdict.UNKNOWN
    elif answer.status != http.HTTPStatus.OK:
        _take_error(result, answer.read(), answer.headers.get("x-should-retry"))
    elif planned_call.manner is Manner.WHOLE:
        _take_document(result, json.loads(answer.read()))
    else:
        _read_stream(result, answer, planned_call)


@contextlib.contextmanager
def _connected(front: str, planned_call: PlannedCall) -> Iterator[http.client.HTTPConnection]:
    parts = urlsplit(front)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
    with contextlib.closing(connection):
        if planned_call.manner is Manner.SLOW:
            connection.sock = socket.socket()
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_READ_BYTES)
            connection.sock.settimeout(TIMEOUT_SECONDS)
            connection.sock.connect((parts.hostname, parts.port))
        else:
            connection.connect()
        held = connection.sock
        try:
            yield connection
        finally:
            held.close()  # Close now, although the response object still refers to the connection.


def _take_error(result: CallResult, body: bytes, should_retry: str | None) -> None:
    result.error = json.loads(body)["error"]
    result.code = result.error["code"]
    result.verdict = Verdict.FAILED if should_retry == "false" else Verdict.REFUSED


def _take_document(result: CallResult, document: dict[str, Any]) -> None:
    is_chat = document["object"] == "chat.completion"
    usage = document["usage"]
    _take_usage(result, document["id"], usage)
    if is_chat:
        (choice,) = document["choices"]
        result.text, is_complete = choice["message"]["content"], choice["finish_reason"] == "stop"
    else:
        parts = [part for item in document["output"] for part in item.get("content", ())]
        result.text, is_complete = "".join(part["text"] for part in parts), document["status"] == "completed"
    result.verdict = Verdict.COMPLETED if is_complete else Verdict.FAILED


def _read_stream(result: CallResult, answer: http.client.HTTPResponse, planned_call: PlannedCall) -> None:
    is_over = False
    for event in _events(answer, is_slow=planned_call.manner is Manner.SLOW):
        is_over = is_over or event is None or _is_terminal(event)
        if event is not None:
            _take_event(result, event)
        if planned_call.manner is Manner.LEFT and len(result.text) > planned_call.chunks * len(PIECE) // 2:
            result.verdict = Verdict.UNKNOWN
            return
    if not is_over:
        result.faults.append("a stream just ended, without an error and without its end")


def _events(answer: http.client.HTTPResponse, *, is_slow: bool) -> Iterator[dict[str, Any] | None]:
    """Yield the data of each event, and None for the terminator; raise if the connection breaks in the middle."""
    received = b""
    while piece := answer.read1(SLOW_READ_BYTES if is_slow else 1 << 16):
        *lines, received = (received + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data: "):
                data = line.removeprefix(b"data: ").strip()
                yield None if data == b"[DONE]" else json.loads(data)
        if is_slow:
            time.sleep(len(piece) / SLOW_BYTES_PER_SECOND)


def _is_terminal(event: dict[str, Any]) -> bool:
    return event.get("type") in _TERMINAL_TYPES


def _take_event(result: CallResult, event: dict[str, Any]) -> None:
    if event.get("object") == "chat.completion.chunk":
        _take_chunk(result, event)
    elif event.get("type") == "response.output_text.delta":
        result.text += event["delta"]
    elif event.get("type") == "response.completed":
        _take_usage(result, event["response"]["id"], event["response"]["usage"])
        result.verdict = Verdict.COMPLETED
    elif "error" in event or event.get("type") in _TERMINAL_TYPES:
        result.verdict = Verdict.FAILED


def _take_chunk(result: CallResult, chunk: dict[str, Any]) -> None:
    if chunk.get("usage"):
        _take_usage(result, chunk["id"], chunk["usage"])
    for choice in chunk["choices"]:
        result.text += choice["delta"].get("content") or ""
        if choice["finish_reason"] == "stop":
            result.verdict = Verdict.COMPLETED


def _take_usage(result: CallResult, answer_id: str, usage: dict[str, int]) -> None:
    result.invocation_id = str(UUID(answer_id.removeprefix("chatcmpl-").removeprefix("resp_")))
    result.prompt_tokens = usage.get("prompt_tokens", usage.get("input_tokens"))
    result.completion_tokens = usage.get("completion_tokens", usage.get("output_tokens"))
