"""Read an upstream's response from its socket as events, and raise an error if the response breaks off.

Real servers deviate from the standards. The reader accepts any line ends, a JSON document instead of a stream, a wrong
content type, a stream without `[DONE]`, and a last event without its blank line. It refuses truncated and endless
bodies, and data that is not JSON.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol, Self

from urllib3.exceptions import HTTPError

from shared.models.catalog import Upstream
from shared.models.dialects.requests import Dialect
from shared.models.providers.base import Event
from shared.models.providers.connections import response_of
from shared.models.providers.errors import ProviderError
from shared.models.providers.sse import MAX_EVENT_BYTES, EventTooLarge, SseEvent, SseParser
from shared.models.providers.watchdog import Call, Watchdog
from shared.models.stream_loop import Pollable

READ_BYTES = 64 << 10
MAX_WHITE_SPACE_BYTES = 64 << 10
MAX_ANSWER_BYTES = 512 << 20
MAX_JSON_BYTES = 16 << 20
SECONDS_FOR_THE_END = 0.3
"""Maximum time to wait for the body's end after `[DONE]`. The end is needed only to reuse the connection."""
_TERMINATOR = b"[DONE]"
# Decode UTF-8 and parse with a decoder: `json.loads` of bytes would detect the encoding of every event.
_decode = json.JSONDecoder().decode
# Include ValueError, which a TLS socket raises at a read after it was shut down.
_BROKEN = (OSError, HTTPError, ValueError)


class Body(Protocol):
    """A response body of urllib3."""

    def read1(self, amt: int | None = None) -> bytes:
        """Return the bytes that have arrived, at most `amt`; empty at the end."""

    def release_conn(self) -> None:
        """Return the connection to its pool."""

    def close(self) -> None:
        """Close the connection."""


class AnswerStream:
    """The events of one response."""

    def __init__(self, upstream: Upstream, body: Body, call: Call, watchdog: Watchdog) -> None:
        self.upstream = upstream
        self._body = body
        self._response = response_of(body)
        self._call = call
        self._watchdog = watchdog
        self._parser = SseParser(max_event_bytes=MAX_EVENT_BYTES)
        self._received_bytes = 0
        self._error: ProviderError | None = None
        self._is_streamed = False
        self._is_terminated = False
        self._is_at_end = False

    def __enter__(self) -> Self:
        """Start reading."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Return the connection to the pool if the response was read to its end.

        Otherwise close the connection, so that the upstream stops.
        """
        if self._is_terminated and not self._is_at_end:
            self._read_end_of_body()
        self._watchdog.forget(self._call)
        if self._is_at_end:
            self._body.release_conn()
        else:
            self._body.close()

    @property
    def received_done_marker(self) -> bool:
        """Whether the upstream ended its stream with `[DONE]`, or responded with one document."""
        return self._is_terminated

    def __iter__(self) -> Iterator[Event]:
        """Yield the events one by one."""
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events. Each list has the events that arrived together."""
        start = self._first_bytes()
        # Distinguish a document from a stream by the first byte, because the content type is not reliable.
        if start.lstrip()[:1] in (b"{", b"["):
            document = self._document(start)
            self._is_terminated = True
            yield [document]
            return
        yield from self._streamed(start)

    @property
    def is_pollable(self) -> bool:
        """Whether all unread data makes the socket readable, so that a loop may poll it and call `read_available`."""
        is_open = self._is_streamed and not self._is_terminated and self._error is None
        return is_open and self._response is not None and self._response.is_pollable

    @contextmanager
    def polling(self) -> Iterator[Pollable]:
        """Allow calls of `read_available` within the block. The caller has checked `is_pollable`."""
        assert self._response is not None  # noqa: S101 (as the caller has seen)
        self._call.resume_timer()
        try:
            with self._response.non_blocking():
                yield self._response
        finally:
            self._call.pause_timer()

    def read_available(self) -> list[Event] | None:
        """Return the events that have arrived, without waiting. None means: leave `polling` and continue `batches`.

        Raises ProviderError.
        """
        assert self._response is not None  # noqa: S101 (within `polling`)
        # If the watchdog has cut the call, return None, so that the call's own thread raises the error.
        received = None if self._call.reason is not None else self._response.read_available()
        if received is None:
            return None
        self._count(received)
        self._call.resume_timer()
        return self._events_of(received)

    def hang_up(self) -> None:
        """Close the connection for new bytes.

        `batches` still yields the events that have arrived, then raises CallCancelled unless the reply is complete.
        """
        self._call.cancel()

    def _streamed(self, received: bytes) -> Iterator[list[Event]]:
        self._is_streamed = True
        while received:
            if events := self._events_of(received):
                yield events
            if self._error is not None:
                raise self._error
            if self._is_terminated:
                return
            received = self._read()
        if last := self._cut_event():
            yield last

    def _events_of(self, received: bytes) -> list[Event]:
        """Return the events that these bytes complete, up to the first invalid event.

        The error of an invalid event is stored, and `batches` raises it later.
        """
        events: list[Event] = []
        try:
            self._parse(self._parser.feed(received), events)
        except EventTooLarge:
            self._error = self._failure("The provider sent an event larger than the limit.")
        except ProviderError as error:
            self._error = error
        return events

    def _parse(self, received: list[SseEvent], events: list[Event]) -> None:
        """Append events to the list, up to the terminator or the first invalid event."""
        for name, data in received:
            if data.startswith(_TERMINATOR):
                self._is_terminated = True
                return
            if data and not data.isspace():
                events.append(self._event(name, data))

    def _event(self, name: str, data: bytes) -> Event:
        try:
            event = _decode(data.decode())
        except (ValueError, RecursionError) as error:
            raise self._failure("The provider sent something that is not JSON.") from error
        if not isinstance(event, dict):
            raise self._failure("The provider sent something that is not a JSON object.")
        if name and "type" not in event and self.upstream.dialect is Dialect.RESPONSES:
            # Copy the type from the SSE field `event`: some servers omit it in the JSON of a Responses event.
            event["type"] = name
        return event

    def _cut_event(self) -> list[Event]:
        """Return the last event if only its blank line is missing; drop the event if its JSON is incomplete."""
        events: list[Event] = []
        with suppress(ProviderError):
            self._parse(self._parser.finish(), events)
        return events

    def _first_bytes(self) -> bytes:
        start = b""
        while not start.strip(b"\xef\xbb\xbf \t\r\n"):
            received = self._read()
            if not received:
                raise self._failure("The provider sent an empty response.")
            # Accept some white space, which servers send to keep the connection open while they work.
            if len(start) > MAX_WHITE_SPACE_BYTES:
                raise self._failure("The provider's response has only white space.")
            start += received
        if start.lstrip()[:1] == b"<":
            raise self._failure("The provider responded with a web page instead of a model's output.")
        return start

    def _document(self, start: bytes) -> Event:
        """Return the whole response as one event. If the connection broke, the response is valid if its JSON is."""
        content, broken = bytearray(start), None
        try:
            while len(content) <= MAX_JSON_BYTES and (received := self._read()):
                content += received
        except ProviderError as error:
            broken = error
        if len(content) > MAX_JSON_BYTES:
            raise self._failure("The provider's response is larger than the limit.")
        try:
            return self._event("", bytes(content))
        except ProviderError:
            if broken is not None:
                raise broken from None
            raise

    def _read(self) -> bytes:
        self._call.resume_timer()
        try:
            received = self._body.read1(READ_BYTES)
        except _BROKEN as error:
            raise self._failure(
                "The connection to the provider broke in the middle of its response."
            ) from error
        if not received:
            # Check for a cut first: after the watchdog has shut a socket down, a read looks like the response's end.
            self._call.raise_if_cut(may_have_cost=True)
            self._is_at_end = True
            # Never cut this connection again: urllib3 has returned it to the pool, and another call may use it.
            self._call.release()
            return b""
        self._count(received)
        return received

    def _count(self, received: bytes) -> None:
        self._call.pause_timer()
        self._received_bytes += len(received)
        if self._received_bytes > MAX_ANSWER_BYTES:
            # End the call, to bound memory and cost if an upstream never stops sending.
            raise self._failure("The provider's response is larger than the limit.")

    def _read_end_of_body(self) -> None:
        """Read the body's end after `[DONE]`, so that the connection can be reused. Wait for a fraction of a second."""
        self._call.shorten_deadline(SECONDS_FOR_THE_END)
        try:
            self._is_at_end = self._body.read1(READ_BYTES) == b"" and self._call.reason is None
        except _BROKEN:
            return

    def _failure(self, detail: str) -> ProviderError:
        return self._call.failure(ProviderError(detail, may_have_cost=True))
