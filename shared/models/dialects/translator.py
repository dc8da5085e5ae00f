"""The translation of one call: the client's request to an upstream's body, and its events to the client's reply.

`upstream_body` translates the request. `Translator` turns upstream events of either dialect into deltas, or one body,
of the client's. It selects the pair of dialects and holds the common parts: failure, end, and usage, so that the client
reads the same counts that are charged. Reads no socket.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from shared.credits.prices import TokenCounts
from shared.models.dialects.chat_as_responses import chat_as_responses
from shared.models.dialects.chat_stream import ChatStream
from shared.models.dialects.deltas import Delta, write_json
from shared.models.dialects.failures import Failure, read_failure, truncated
from shared.models.dialects.messages_as_chat import messages_as_chat, messages_as_responses
from shared.models.dialects.messages_stream import MessagesStream
from shared.models.dialects.requests import Dialect, Json, ParsedRequest, object_or_empty
from shared.models.dialects.responses_as_chat import responses_as_chat
from shared.models.dialects.responses_as_chunks import ResponsesAsChunks
from shared.models.dialects.responses_relay import ResponsesRelay
from shared.models.dialects.responses_stream import ResponsesStream
from shared.models.dialects.token_counts import estimate_completion_tokens, estimate_prompt_tokens, read_usage

EARLY_REPORT_FACTOR = 2


class Stream(Protocol):
    """The interface of each client dialect's stream."""

    usage: TokenCounts | None
    is_complete: bool

    @property
    def size_bytes(self) -> int:
        """The model's output so far, in bytes of UTF-8."""

    @property
    def status(self) -> str:
        """`completed` or `incomplete`."""

    def feed(self, event: Json, /) -> list[Delta]:
        """Read one upstream event. Return its deltas."""

    def finish(self, usage: TokenCounts, /) -> list[Delta]:
        """End a complete reply."""

    def fail(self, failure: Failure, usage: TokenCounts | None, /) -> list[Delta]:
        """End a broken reply; without usage, nothing is charged."""

    def result(self, usage: TokenCounts, /) -> Json:
        """Return the whole reply."""


class Translator:
    """One reply.

    Call `feed` until it is over, then `end` or `fail`; charge `settled_usage`, and write the end by `finish`.

    `failure` is set once the reply broke. After that, as after the end, only `finish` returns deltas.
    """

    def __init__(
        self,
        parsed: ParsedRequest,
        *,
        upstream_dialect: Dialect,
        invocation_id: UUID,
        model_id: str,
        created: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._parsed = parsed
        self._upstream_dialect = Dialect(upstream_dialect)
        # Chat and Messages replies are both built from chat chunks.
        is_read = parsed.dialect is not Dialect.RESPONSES and self._upstream_dialect is Dialect.RESPONSES
        self._reader = ResponsesAsChunks() if is_read else None
        self._stream: Stream
        if parsed.dialect is Dialect.CHAT:
            reply_id = f"chatcmpl-{invocation_id.hex}"
            self._stream = ChatStream(parsed, reply_id=reply_id, model_id=model_id, created=created)
        elif parsed.dialect is Dialect.MESSAGES:
            self._stream = MessagesStream(parsed, reply_id=f"msg_{invocation_id.hex}", model_id=model_id)
        else:
            make = ResponsesStream if self._upstream_dialect is Dialect.CHAT else ResponsesRelay
            reply_id = f"resp_{invocation_id.hex}"
            self._stream = make(parsed, reply_id=reply_id, model_id=model_id, created=created, clock=clock)
        self._has_ended = False
        self._is_written = False
        self._cost: str | None = None
        self.has_started = False
        self.failure: Failure | None = None

    def feed(self, event: Json) -> list[Delta]:
        """Read one upstream event, which may be modified. Return its deltas; none if the client wants no stream.

        An error inside the upstream's stream ends the reply as `fail` does.
        """
        if self._has_ended:
            return []
        failure = read_failure(event)
        if failure is not None:
            reported = read_usage(object_or_empty(event.get("response", event)).get("usage"))
            # Zeros beside an error do not take back an earlier report.
            if reported is not None and reported.total_tokens:
                self._stream.usage = reported
            self._fail(failure)
            return []
        if self._reader is None:
            deltas = self._stream.feed(event)
        else:
            deltas = [delta for chunk in self._reader.read(event) for delta in self._stream.feed(chunk)]
        self.has_started = True
        return deltas

    def end(self, *, received_done_marker: bool = False) -> None:
        """End the reply after the upstream's stream; `received_done_marker` is whether it ended with `[DONE]`.

        Without any sign of completion, the stream broke off: the reply becomes a failure, never a success.
        """
        if self._has_ended:
            return
        ended_by_marker_only = (
            received_done_marker and self._upstream_dialect is Dialect.CHAT and self.completion_size_bytes > 0
        )
        if self.is_finished or ended_by_marker_only:
            self._has_ended = True
        else:
            self._fail(truncated())

    def fail(self, code: str, message: str) -> None:
        """End the reply with an error of ours: the provider broke off, timed out, or the call was cancelled."""
        if not self._has_ended:
            self._fail(Failure(code=code, message=message))

    def finish(self, *, cost: str | None = None) -> list[Delta]:
        """Return the closing deltas of a finished reply, once. `cost` is shown beside the usage."""
        if self._is_written:
            return []
        self._is_written, self._cost = True, cost
        counts, _ = self.settled_usage()
        if self.failure is not None:
            deltas = self._stream.fail(self.failure, counts if counts.total_tokens else None)
        else:
            deltas = self._stream.finish(counts)
        for delta in deltas:
            self._show_cost(delta.content)
        return deltas

    def result(self) -> Json:
        """Return the whole `chat.completion`, response or message, after `finish`, for a client without a stream."""
        counts, _ = self.settled_usage()
        result = self._stream.result(counts)
        self._show_cost(result)
        return result

    def body(self) -> bytes:
        """Return `result` as JSON bytes, with finite numbers only."""
        return write_json(self.result()).encode("ascii")

    @property
    def is_finished(self) -> bool:
        """Whether the upstream has marked the reply as complete; only usage may follow."""
        return self._stream.is_complete

    @property
    def status(self) -> str:
        """`completed`, `incomplete` (cut by a limit or a filter) or `failed`."""
        return "failed" if self.failure is not None else self._stream.status

    @property
    def usage(self) -> TokenCounts | None:
        """The upstream's report so far; None also for a report of zero tokens beside actual output."""
        counts = self._stream.usage
        if counts is None or self.is_report_implausible:
            return None
        return None if counts.total_tokens == 0 and self.completion_size_bytes else counts

    @property
    def is_report_implausible(self) -> bool:
        """Whether the upstream reported impossible counts, which are replaced by an estimate."""
        return self._stream.usage is not None and not self._stream.usage.is_plausible

    @property
    def completion_size_bytes(self) -> int:
        """The model's output so far, including reasoning and arguments, in bytes of UTF-8."""
        return self._stream.size_bytes

    def settled_usage(self) -> tuple[TokenCounts, bool]:
        """Return the counts to charge and to show, and whether they are estimated.

        Without a report, the prompt and the output so far are estimated. A broken reply without either counts nothing.
        """
        reported, completion_tokens = self.usage, estimate_completion_tokens(self.completion_size_bytes)
        if reported is None and not completion_tokens and not self._has_ended_well:
            return TokenCounts(prompt_tokens=0, completion_tokens=0), False
        if reported is None:
            prompt_tokens = estimate_prompt_tokens(self._parsed)
            return TokenCounts(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens), True
        if self._has_ended_well or completion_tokens <= EARLY_REPORT_FACTOR * reported.completion_tokens:
            return reported, False
        # Some upstreams report at the start: for a stream that broke later, such a report covers the prompt only.
        return replace(reported, completion_tokens=completion_tokens), True

    @property
    def _has_ended_well(self) -> bool:
        return self.is_finished or (self._has_ended and self.failure is None)

    def _fail(self, failure: Failure) -> None:
        self._has_ended = True
        self.failure = failure

    def _show_cost(self, content: Json) -> None:
        usage = object_or_empty(content.get("response", content)).get("usage")
        if self._cost is not None and isinstance(usage, dict):
            usage["cost"] = self._cost


def upstream_body(
    parsed: ParsedRequest,
    upstream_dialect: Dialect,
    upstream_model: str,
    *,
    limit_field: str = "max_completion_tokens",
    streams_only: bool = False,
) -> Json:
    """Return the body for one upstream; `limit_field` is its field for the output limit.

    Raises InvalidRequest if the upstream's dialect cannot express the request.
    """
    is_stream = parsed.is_stream or streams_only
    # Upstreams refuse options of a stream in a request without one.
    omitted = () if is_stream else ("stream_options",)
    body = {name: value for name, value in parsed.body.items() if value is not None and name not in omitted}
    if upstream_dialect is Dialect.RESPONSES:
        if parsed.dialect is not Dialect.RESPONSES:
            body = chat_as_responses(body) if parsed.dialect is Dialect.CHAT else messages_as_responses(body)
        return {**body, "model": upstream_model, "stream": is_stream, "store": False}
    if parsed.dialect is not Dialect.CHAT:
        translate = responses_as_chat if parsed.dialect is Dialect.RESPONSES else messages_as_chat
        body = translate(body, limit_field=limit_field)
    # Compatible servers may refuse the unknown field; nothing is stored by default in chat.
    body.pop("store", None)
    upstream_request = {**body, "model": upstream_model, "stream": is_stream}
    # Without the report, the call could only be charged by estimate.
    if is_stream:
        upstream_request["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return upstream_request
