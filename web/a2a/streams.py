"""Stream the events of a task as server-sent events, read from the database.

A stream needs no thread while it waits (`web/framework/deferred_responses.py`). The stream ends when the task
ends or its web process stops. A client may subscribe again at any web process, and gets the current task and
then the further events. An error before the first event becomes an error response. A later error becomes an
event named `error`. An event's id is its number in the task's log. A subscription with `Last-Event-ID`
continues after that number.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

from flask import Response

from shared.a2a.errors import TaskNotFound, UnsupportedOperation
from shared.a2a.exact_json import render
from shared.a2a.tasks.responses import Event, TurnResponse, find_response, follow, require_valid_response
from shared.a2a.tasks.snapshots import Snapshot, find_snapshot
from shared.a2a.tasks.submission import AcceptedMessage, show_task
from shared.a2a.tasks.task_notifier import Watch
from shared.db.database import Database
from shared.errors import DomainError
from shared.fairness.admission import PoolKey
from shared.observability.telemetry import get_logger
from web.a2a.protocol_routes import AgentCall
from web.a2a.rpc_envelopes import RpcRequest
from web.dependencies.agent_services import AgentServices, StreamSlots
from web.error_responses.a2a_errors import error_body
from web.error_responses.status_codes import STATUSES
from web.framework import revocation
from web.framework.calls import request_id
from web.framework.deferred_responses import (
    PendingResponse,
    ResponseGenerator,
    event_stream,
    stream_when_ready,
)

log = get_logger(__name__)

# Send a comment after this many seconds without an event. By then, show the task even if the agent has not
# replied.
COMMENT_SECONDS = 10.0
COMMENT = b": still working\n\n"
# Frames to send, and None while there is nothing to send.
Frames = Generator[bytes | None]
_EVENT_ID = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamSource:
    """The data from which a stream renders its frames.

    The source outlives the request's context, which ends before the stream does.
    """

    database: Database
    services: AgentServices
    task_id: UUID
    resume_after: int | None
    rpc: RpcRequest | None
    pending: PendingResponse

    @classmethod
    def of(cls, call: AgentCall, task_id: UUID, pending: PendingResponse) -> StreamSource:
        """Return the source for a task. The request determines the binding and the event to resume after."""
        # Read the header that the EventSource of browsers sends when it reconnects.
        sent = call.http.headers.get("Last-Event-ID", "").strip()
        return cls(
            database=call.context.services.database,
            services=call.services,
            task_id=task_id,
            resume_after=int(sent) if _EVENT_ID.fullmatch(sent) else None,
            rpc=call.rpc,
            pending=pending,
        )

    def watch(self) -> Watch:
        """Return a watch that wakes the response up when the task changes."""
        return self.services.watch.watch(self.task_id, self.pending.wake_up)

    def follow(self, watch: Watch, after_sequence: int, *, reads_first: bool) -> Iterator[Event | None]:
        """Yield the events after a sequence number. Yield None while there is no further event."""
        return follow(self.database, watch, after_sequence, self.pending.seconds, reads_first=reads_first)

    def task(self, snapshot: Snapshot) -> bytes:
        """Return the frame of a task."""
        return self._frame({"task": snapshot.task.to_wire()}, snapshot.sequence)

    def event(self, event: Event) -> bytes:
        """Return the frame of an event."""
        if not self.services.links.may_contain_files(event.text):
            return self._numbered(event.text, event.sequence)
        return self._frame(event.body, event.sequence)

    def response(self, answered: TurnResponse) -> bytes:
        """Return the frame of a response that was sent to an earlier attempt of the same message."""
        return self._frame(answered.body.to_wire(), answered.sequence)

    def _frame(self, body: Mapping[str, Any], number: int) -> bytes:
        return self._numbered(render(self.services.links.with_links(self.task_id, body)), number)

    def _numbered(self, text: str, number: int) -> bytes:
        data = text if self.rpc is None else self.rpc.wrap(text)
        return f"id: {number}\ndata: {data}\n\n".encode()


def stream_message_response(call: AgentCall, send: Callable[[], AcceptedMessage]) -> Response:
    """Stream the response to a message: the task and then its updates, or a single message.

    The message is accepted only after the stream has a slot: if an accepted message were refused afterwards,
    the client would send it again. Raises TooManyStreams, ConcurrencyLimited, PoolExhausted.
    """
    pending = _pending_response(call)
    frames = message_frames(lambda task_id: StreamSource.of(call, task_id, pending), send)
    return _response(call, frames, pending, call.watch)


def stream_task(call: AgentCall, task_id: UUID) -> Response:
    """Stream a task's updates, beginning with its current state.

    Raises TaskNotFound, UnsupportedOperation if the task has ended, TooManyStreams, ConcurrencyLimited,
    PoolExhausted.
    """
    pending = _pending_response(call)
    frames = _task_frames(StreamSource.of(call, task_id, pending), partial(_find, call, task_id))
    return _response(call, frames, pending, call.watch_reading)


def _pending_response(call: AgentCall) -> PendingResponse:
    return PendingResponse(call.http.environ, idle_seconds=COMMENT_SECONDS, is_blocking=True)


def _response(call: AgentCall, frames: Frames, pending: PendingResponse, watch: revocation.Watch) -> Response:
    """Return a stream of the given frames. Raises the error that occurred before the first frame."""
    host = urlsplit(call.context.services.settings.base_url).hostname or ""
    frames = with_slot(call.services.slots, call.context.admission.key, frames)
    frames = revocation.until_revoked(frames, watch, pending.wake_up.notify)
    show = partial(render_stream_error, rpc=call.rpc, request=request_id(), host=host)
    return stream_when_ready(stream_generator(frames, show), pending)


def render_stream_error(
    error: DomainError, *, request: str, host: str, rpc: RpcRequest | None = None
) -> object:
    """Return the body of an error in A2A's format, for the binding of the request."""
    body = error_body(STATUSES[error.kind], error.code, error.detail, request=request, host=host)
    return body if rpc is None else rpc.wrap_error(body)


def stream_generator(frames: Frames, show: Callable[[DomainError], object]) -> ResponseGenerator:
    """Yield the response and the frames of a stream.

    An error before the first frame is raised. A later error becomes a frame.
    """
    has_begun = False
    try:
        for frame in frames:
            if frame is not None and not has_begun:
                has_begun = True
                yield event_stream()
            yield frame
    except DomainError as error:
        if not has_begun:
            raise
        log.warning("stream.failed", code=error.code)
        yield f"event: error\ndata: {render(show(error))}\n\n".encode()
    finally:
        frames.close()


def with_slot(slots: StreamSlots, key: PoolKey, frames: Frames) -> Frames:
    """Yield frames while holding a stream's slot. Raises TooManyStreams, ConcurrencyLimited, PoolExhausted."""
    # Take the slot at the first step, so that a refusal still becomes an error response.
    with slots.hold(key), closing(frames):
        yield from frames


def message_frames(
    open_source: Callable[[UUID], StreamSource], send: Callable[[], AcceptedMessage]
) -> Frames:
    """Send a message and yield the frames of the response, until the turn ends."""
    sent = send()
    del send  # Free the message, which may be long.
    source = open_source(sent.task_id)
    with source.watch() as watch:
        stream = _MessageStream(source, sent)
        yield from stream.begin()
        if stream.is_over():
            return
        # The watch was registered before this first read, so no event is missed.
        for event in source.follow(watch, sent.snapshot.sequence, reads_first=True):
            # While the server drains, show the task at least: the client needs its id to subscribe at another
            # process.
            is_last_check = event is None and source.pending.is_shutting_down
            yield from stream.forward(event) if event is not None else stream.on_idle(shows_now=is_last_check)
            if stream.is_over() or (is_last_check and stream.is_shown):
                return
            if event is None:
                yield None


def _task_frames(source: StreamSource, find: Callable[[], Snapshot]) -> Frames:
    """Yield the frames of a subscription.

    The subscription continues when the task is interrupted, and ends with the task.
    """
    with source.watch() as watch:
        snapshot = find()
        after = snapshot.sequence
        if source.resume_after is not None:
            # Ignore a `Last-Event-ID` after the newest event: the client cannot have received an event that
            # does not exist.
            after = min(after, source.resume_after)
        is_complete = after == snapshot.sequence or not snapshot.has_events
        if snapshot.task.status.state.is_terminal and is_complete:
            # Raise before the first frame, so that the error becomes an error response.
            raise UnsupportedOperation(
                "The task has ended, so it has no further updates. Get the task instead."
            )
        # A client that resumes has the task already, so start the response with a comment instead.
        yield source.task(snapshot) if source.resume_after is None else COMMENT
        keep_alive = KeepAlive()
        for event in source.follow(watch, after, reads_first=after < snapshot.sequence):
            if event is None:
                if source.pending.is_shutting_down:
                    return
                yield keep_alive.comment_if_due()
                continue
            keep_alive.mark_sent()
            yield source.event(event)
            if event.is_last:
                return


def _find(call: AgentCall, task_id: UUID) -> Snapshot:
    with call.context.services.database.autocommit() as session:
        snapshot = find_snapshot(session, call.readable, task_id)
    if snapshot is None:
        raise TaskNotFound
    return snapshot


class KeepAlive:
    """Decides when a silent stream needs a comment to stay open."""

    def __init__(self) -> None:
        self.mark_sent()

    def mark_sent(self) -> None:
        """Record that the stream is sending a frame."""
        self._sent_at = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether a comment is due."""
        return time.monotonic() - self._sent_at >= COMMENT_SECONDS

    def comment_if_due(self) -> bytes | None:
        """Return a comment if one is due, else None."""
        if not self.is_due:
            return None
        self.mark_sent()
        return COMMENT


class _MessageStream:
    """The frames of the response to one message: the task as it was when the message was accepted, and its events.

    The task is shown only when it is certain that the agent does not reply with a single message.
    """

    def __init__(self, source: StreamSource, sent: AcceptedMessage) -> None:
        self._source = source
        self._sent = sent
        self._turns_before = sent.turns_before
        self.is_shown = self._is_over = False
        self._keep_alive = KeepAlive()

    def is_over(self) -> bool:
        """Whether the response is complete."""
        return self._is_over

    def begin(self) -> Iterator[bytes]:
        """Yield the task, if the client may know it already.

        If an earlier attempt of the message got a response, yield that complete response.
        """
        if self._sent.is_replay and (answered := self._find_response()) is not None:
            self._is_over = True
            yield answered
        elif self._sent.is_visible:
            yield self._show()

    def forward(self, event: Event) -> Iterator[bytes]:
        """Yield the frames of an event."""
        self._keep_alive.mark_sent()
        # The protocol requires the task before its updates, but a reply with a message has no task.
        if not self.is_shown and event.kind != "message":
            yield self._show()
        yield self._source.event(event)
        if event.is_interruption and self._turns_before:
            self._turns_before -= 1  # This interruption belongs to an earlier message, so the stream goes on.
            return
        self._is_over = event.is_last or event.is_interruption

    def on_idle(self, *, shows_now: bool) -> Iterator[bytes]:
        """Yield the task if it is due or `shows_now` is true, else a comment if that is due.

        Raises InvalidAgentResponse.
        """
        if not self.is_shown:
            with self._source.database.autocommit() as session:
                require_valid_response(session, self._sent.turn_id)
        if not self._keep_alive.is_due and not shows_now:
            return
        self._keep_alive.mark_sent()
        if self.is_shown:
            yield COMMENT
            return
        with self._source.database.transaction() as session:
            is_task = show_task(session, self._sent.task_id)
        # If there is no task, the agent has just replied with a message or failed: its event follows.
        if is_task:
            yield self._show()

    def _show(self) -> bytes:
        self.is_shown = True
        return self._source.task(self._sent.snapshot)

    def _find_response(self) -> bytes | None:
        with self._source.database.autocommit() as session:
            answered = find_response(session, self._sent.turn_id, history_length=self._sent.history_length)
        return self._source.response(answered) if answered is not None else None
