"""A provider that follows a script instead of calling a model, for tests and first steps.

README.md lists the directives of a script. The same request gets the same events. Usage counts the words of prompt and
reply. Deadlines, cancellation and failures work as for every provider (`base`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Self

from shared.models.catalog import Upstream
from shared.models.dialects.requests import Dialect
from shared.models.providers.base import Cancellation, Event, UpstreamRequest
from shared.models.providers.errors import CallCancelled, ProviderError, ProviderTimeout, refusal
from shared.models.providers.script import Script, read_script
from shared.models.providers.scripted_replies import (
    chat_completion,
    chat_events,
    chat_failure,
    failure_of_response,
    response_events,
)
from shared.models.providers.watchdog import Reason
from shared.models.stream_loop import Pollable


class ScriptedProvider:
    """Follows the script that each request contains."""

    def open(self, request: UpstreamRequest, *, cancelled: Cancellation) -> ScriptedStream:
        """Wait as the script says, then raise the scripted failure or return the reply's stream."""
        script = read_script(request.upstream.dialect, request.body)
        pacing = _Pacing(request, cancelled)
        first_byte_seconds = request.first_byte_timeout_seconds if request.is_streamed else math.inf
        # Wait at most until the first-byte timeout, which a longer wait in the script exceeds.
        pacing.wait(min(script.wait_seconds, first_byte_seconds))
        if script.wait_seconds >= first_byte_seconds:
            raise ProviderTimeout(str(Reason.FIRST_BYTE), may_have_cost=True)
        if script.fail_status is not None:
            headers = {"retry-after": script.retry_after} if script.retry_after else {}
            body = b'{"error": {"message": "The script says to fail.", "type": "scripted", "code": "scripted_failure"}}'
            raise refusal(script.fail_status, headers, body)
        return ScriptedStream(request, script, pacing)

    def close(self) -> None:
        """Do nothing: there are no connections."""


class ScriptedStream:
    """A stream with the events of one scripted reply."""

    is_pollable = False

    def __init__(self, request: UpstreamRequest, script: Script, pacing: _Pacing) -> None:
        self.upstream: Upstream = request.upstream
        self._script = script
        self._pacing = pacing
        self._body = request.body
        self._is_streamed = request.is_streamed
        self._is_chat = self.upstream.dialect is Dialect.CHAT
        self._events = (chat_events if self._is_chat else response_events)(script, request.body)
        self.received_done_marker = False

    def __enter__(self) -> Self:
        """Start reading."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Do nothing: there is no connection."""

    def __iter__(self) -> Iterator[Event]:
        """Yield the events one by one."""
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Event]]:
        """Yield the events, or the document, at the script's pace, up to the scripted failure."""
        if self._is_streamed:
            yield from self._scripted_events()
        else:
            yield [self._document([event for batch in self._scripted_events() for event in batch])]

    def hang_up(self) -> None:
        """Stop the reply."""
        self._pacing.is_hung_up = True

    def polling(self) -> AbstractContextManager[Pollable]:
        """Raise NotImplementedError: there is no socket."""
        raise NotImplementedError

    def read_available(self) -> list[Event] | None:
        """Raise NotImplementedError: there is no socket."""
        raise NotImplementedError

    def _document(self, events: list[Event]) -> Event:
        """Convert the events of a stream to one document with the same content."""
        if self.received_done_marker:
            return chat_completion(self._script, self._body)
        match events[-1]:
            case {"response": dict(response)}:
                return response
            case {"error": _} as failure:
                return failure
        raise ProviderError("The script says to end in the middle.", may_have_cost=True)

    def _scripted_events(self) -> Iterator[list[Event]]:
        script, sent_pieces = self._script, 0
        for event, is_piece in self._events:
            if is_piece:
                if sent_pieces in (
                    script.fail_after,
                    script.break_after,
                    script.end_after,
                    script.stall_after,
                ):
                    yield from self._go_wrong(sent_pieces)
                    return
                self._pacing.wait(script.delay_seconds)
                sent_pieces += 1
            yield [event]
        self.received_done_marker = self._is_chat

    def _go_wrong(self, sent_pieces: int) -> Iterator[list[Event]]:
        script = self._script
        if sent_pieces == script.fail_after:
            yield [chat_failure() if self._is_chat else failure_of_response(script, sent_pieces)]
        elif sent_pieces == script.break_after:
            raise ProviderError("The script says to break off.", may_have_cost=True)
        elif sent_pieces == script.stall_after:
            self._pacing.wait(self.upstream.provider.idle_timeout_seconds if self._is_streamed else math.inf)
            raise ProviderTimeout(str(Reason.SILENCE), may_have_cost=True)


class _Pacing:
    """The waits of one scripted reply. A wait ends early, with an error, at the call's deadline or cancellation."""

    def __init__(self, request: UpstreamRequest, cancelled: Cancellation) -> None:
        self._deadline_at = request.deadline_at
        self._cancelled = cancelled
        self.is_hung_up = False

    def wait(self, seconds: float) -> None:
        if seconds > 0 and not self.is_hung_up:
            self._cancelled.wait(min(seconds, max(0.0, self._deadline_at - time.monotonic())))
        if self.is_hung_up or self._cancelled.is_set():
            raise CallCancelled(may_have_cost=True)
        if time.monotonic() >= self._deadline_at:
            raise ProviderTimeout(str(Reason.DEADLINE), may_have_cost=True)
