"""The translation of one call: of the client's request to an upstream's body, and of upstream events to a reply.

`upstream_body` translates the request. `Translator` translates the upstream's events to deltas, or one body, of the
client's dialect. `Translator` selects the stream for the dialects, and determines failure, end and usage of all
streams. So the usage in the reply is the usage that is charged. The translation does no I/O.
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
    """The interface of a stream, which translates upstream events to deltas of one client dialect."""

    usage: TokenCounts | None
    is_complete: bool

    @property
    def size_bytes(self) -> int:
        """The size of the model's output so far, in bytes of UTF-8."""

    @property
    def status(self) -> str:
        """`completed` or `incomplete`."""

    def feed(self, event: Json, /) -> list[Delta]:
        """Read one upstream event. Return the deltas for the client."""

    def finish(self, usage: TokenCounts, /) -> list[Delta]:
        """End a complete reply. Return the last deltas."""

    def fail(self, failure: Failure, usage: TokenCounts | None, /) -> list[Delta]:
        """End a broken reply. Return the last deltas. `usage` is None if nothing is charged."""

    def result(self, usage: TokenCounts, /) -> Json:
        """Return the whole reply."""


class Translator:
    """The translation of one reply.

    The caller calls `feed` for each event, then `end` or `fail`, then charges `settled_usage` and calls `finish`.

    `failure` is set if the reply broke off. After a failure or the end, only `finish` returns deltas.
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
        # Chat and Messages replies are built from chat chunks, so first translate Responses events to chunks.
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
        """Read one upstream event. Return the deltas for the client, or none if the client wants no stream.

        May modify `event`. An error inside the upstream's stream ends the reply as `fail` does.
        """
        if self._has_ended:
            return []
        failure = read_failure(event)
        if failure is not None:
            reported = read_usage(object_or_empty(event.get("response", event)).get("usage"))
            # Keep an earlier report if the error's report has only zeros.
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
        """End the reply, because the upstream's stream has ended. `received_done_marker`: it ended with `[DONE]`.

        If the stream had no sign of completion, it broke off, so the reply becomes a failure.
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
        """End the reply with an error that this service found, such as a timeout or a cancellation."""
        if not self._has_ended:
            self._fail(Failure(code=code, message=message))

    def finish(self, *, cost: str | None = None) -> list[Delta]:
        """Return the closing deltas of an ended reply, with `cost` in the usage. A second call returns no deltas."""
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
        """Return the whole `chat.completion`, response or message, for a client without a stream.

        The caller must call `finish` first.
        """
        counts, _ = self.settled_usage()
        result = self._stream.result(counts)
        self._show_cost(result)
        return result

    def body(self) -> bytes:
        """Return `result` as JSON bytes, with finite numbers only."""
        return write_json(self.result()).encode("ascii")

    @property
    def is_finished(self) -> bool:
        """Whether the upstream has marked the reply as complete. Only a usage report may follow."""
        return self._stream.is_complete

    @property
    def status(self) -> str:
        """`completed`, `incomplete` (cut by a limit or a filter) or `failed`."""
        return "failed" if self.failure is not None else self._stream.status

    @property
    def usage(self) -> TokenCounts | None:
        """The token counts that the upstream has reported so far.

        None if there is no report, if the report is impossible, or if it has zero tokens although there is output.
        """
        counts = self._stream.usage
        if counts is None or self.is_report_implausible:
            return None
        return None if counts.total_tokens == 0 and self.completion_size_bytes else counts

    @property
    def is_report_implausible(self) -> bool:
        """Whether the upstream reported impossible token counts. An estimate replaces them."""
        return self._stream.usage is not None and not self._stream.usage.is_plausible

    @property
    def completion_size_bytes(self) -> int:
        """The size of the model's output so far, including reasoning and arguments, in bytes of UTF-8."""
        return self._stream.size_bytes

    def settled_usage(self) -> tuple[TokenCounts, bool]:
        """Return the token counts to charge and to put into the reply, and whether they are estimated.

        Without a report, the counts are estimated from the prompt and the output so far. A broken reply with neither a
        report nor output counts as zero tokens.
        """
        reported, completion_tokens = self.usage, estimate_completion_tokens(self.completion_size_bytes)
        if reported is None and not completion_tokens and not self._has_ended_well:
            return TokenCounts(prompt_tokens=0, completion_tokens=0), False
        if reported is None:
            prompt_tokens = estimate_prompt_tokens(self._parsed)
            return TokenCounts(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens), True
        if self._has_ended_well or completion_tokens <= EARLY_REPORT_FACTOR * reported.completion_tokens:
            return reported, False
        # Estimate the completion of this broken stream: some upstreams report usage at the start, before the output.
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
    """Return the request's body for one upstream. `limit_field` is the upstream's name of the output limit.

    Raises InvalidRequest if the upstream's dialect cannot express the request.
    """
    is_stream = parsed.is_stream or streams_only
    # Omit the options of a stream if no stream is requested: upstreams would refuse them.
    omitted = () if is_stream else ("stream_options",)
    body = {name: value for name, value in parsed.body.items() if value is not None and name not in omitted}
    if upstream_dialect is Dialect.RESPONSES:
        if parsed.dialect is not Dialect.RESPONSES:
            body = chat_as_responses(body) if parsed.dialect is Dialect.CHAT else messages_as_responses(body)
        return {**body, "model": upstream_model, "stream": is_stream, "store": False}
    if parsed.dialect is not Dialect.CHAT:
        translate = responses_as_chat if parsed.dialect is Dialect.RESPONSES else messages_as_chat
        body = translate(body, limit_field=limit_field)
    # Drop `store`, which some compatible servers refuse. Without this field, chat upstreams store nothing.
    body.pop("store", None)
    upstream_request = {**body, "model": upstream_model, "stream": is_stream}
    # Request a usage report, without which the call could be charged by estimate only.
    if is_stream:
        upstream_request["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    return upstream_request
