"""Send what happens to a task as server-sent events, from the rows, for as long as somebody listens.

A stream holds no thread while it waits (`web/framework/deferred_responses.py`). It ends with the task, or with its
front: a client that subscribes again, at any process, is given the task as it is and then what follows. Until the first
event a failure is an answer with its own status, afterwards an event named `error`. An event's id is its number in the
task's log; a subscription with `Last-Event-ID` goes on after that number.
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

COMMENT_SECONDS = 10.0
"""After so long without an event a comment is sent; a task is shown whose agent has not said whether it makes one."""
COMMENT = b": still working\n\n"
Frames = Generator[bytes | None]
"""What is sent, and None whenever there is nothing yet."""
_EVENT_ID = re.compile(r"[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What frames are made of, taken from the request, whose context ends before its stream does."""

    database: Database
    services: AgentServices
    task_id: UUID
    resume_after: int | None
    rpc: RpcRequest | None
    pending: PendingResponse

    @classmethod
    def of(cls, call: AgentCall, task_id: UUID, pending: PendingResponse) -> Source:
        """Read what is needed of a request."""
        sent = call.http.headers.get("Last-Event-ID", "").strip()
        return cls(
            database=call.checked.services.database,
            services=call.services,
            task_id=task_id,
            resume_after=int(sent) if _EVENT_ID.fullmatch(sent) else None,
            rpc=call.rpc,
            pending=pending,
        )

    def watch(self) -> Watch:
        """Ask to be woken when the task changes."""
        return self.services.watch.watch(self.task_id, self.pending.wake_up)

    def follow(self, watch: Watch, after_sequence: int, *, reads_first: bool) -> Iterator[Event | None]:
        """Give the events after one; None whenever there is none yet."""
        return follow(self.database, watch, after_sequence, self.pending.seconds, reads_first=reads_first)

    def task(self, snapshot: Snapshot) -> bytes:
        """Make the frame of a task."""
        return self._frame({"task": snapshot.task.to_wire()}, snapshot.sequence)

    def event(self, event: Event) -> bytes:
        """Make the frame of an event."""
        if not self.services.links.may_contain_files(event.text):
            return self._numbered(event.text, event.sequence)
        return self._frame(event.body, event.sequence)

    def answer(self, answered: TurnResponse) -> bytes:
        """Make the frame of an answer that was given before."""
        return self._frame(answered.body.to_wire(), answered.sequence)

    def _frame(self, body: Mapping[str, Any], number: int) -> bytes:
        return self._numbered(render(self.services.links.with_links(self.task_id, body)), number)

    def _numbered(self, text: str, number: int) -> bytes:
        data = text if self.rpc is None else self.rpc.wrap(text)
        return f"id: {number}\ndata: {data}\n\n".encode()


def stream_answer(call: AgentCall, send: Callable[[], AcceptedMessage]) -> Response:
    """Stream the answer to a message: its task first and then updates, or the one message that it is.

    The message is sent once there is room for the stream: what was taken must not be refused, or it is sent again.
    Raises TooManyStreams, ConcurrencyLimited, PoolExhausted.
    """
    pending = _wait(call)
    frames = answer_frames(lambda task_id: Source.of(call, task_id, pending), send)
    return _response(call, frames, pending, call.watch)


def stream_task(call: AgentCall, task_id: UUID) -> Response:
    """Stream a task's updates, its present state first.

    Raises TaskNotFound, UnsupportedOperation when it has ended, TooManyStreams, ConcurrencyLimited, PoolExhausted.
    """
    pending = _wait(call)
    frames = _task_frames(Source.of(call, task_id, pending), partial(_find, call, task_id))
    return _response(call, frames, pending, call.watch_reading)


def _wait(call: AgentCall) -> PendingResponse:
    return PendingResponse(call.http.environ, idle_seconds=COMMENT_SECONDS, is_blocking=True)


def _response(call: AgentCall, frames: Frames, pending: PendingResponse, watch: revocation.Watch) -> Response:
    """Answer with the frames from the first one on, or raise what came in its place."""
    host = urlsplit(call.checked.services.settings.base_url).hostname or ""
    frames = in_slot(call.services.slots, call.checked.admission.key, frames)
    frames = revocation.until_revoked(frames, watch, pending.wake_up.notify)
    show = partial(show_error, rpc=call.rpc, request=request_id(), host=host)
    return stream_when_ready(stream_steps(frames, show), pending)


def show_error(error: DomainError, *, request: str, host: str, rpc: RpcRequest | None = None) -> object:
    """Give the body of an error in the protocol's dialect, as the request's binding has it."""
    body = error_body(STATUSES[error.kind], error.code, error.detail, request=request, host=host)
    return body if rpc is None else rpc.wrap_error(body)


def stream_steps(frames: Frames, show: Callable[[DomainError], object]) -> ResponseGenerator:
    """Give the steps of a stream; an error before its first frame is raised, a later one is shown in an event."""
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


def in_slot(slots: StreamSlots, key: PoolKey, frames: Frames) -> Frames:
    """Give the frames of a stream while it holds a slot. Raises TooManyStreams, ConcurrencyLimited, PoolExhausted."""
    with slots.hold(key), closing(frames):
        yield from frames


def answer_frames(open_source: Callable[[UUID], Source], send: Callable[[], AcceptedMessage]) -> Frames:
    """Send, and give the frames of the answer; they end where the turn does."""
    sent = send()
    del send  # and with it the message, which may be long
    source = open_source(sent.task_id)
    with source.watch() as watch:
        answer = _Answer(source, sent)
        yield from answer.begin()
        if answer.is_over():
            return
        for event in source.follow(watch, sent.snapshot.sequence, reads_first=True):
            is_last_look = event is None and source.pending.is_shutting_down
            yield from answer.hear(event) if event is not None else answer.wait(shows_now=is_last_look)
            if answer.is_over() or (is_last_look and answer.is_shown):
                return
            if event is None:
                yield None


def _task_frames(source: Source, find: Callable[[], Snapshot]) -> Frames:
    """Give the frames of a subscription, which outlasts interruptions and ends with the task."""
    with source.watch() as watch:
        snapshot = find()
        after = snapshot.sequence
        if source.resume_after is not None:
            after = min(after, source.resume_after)  # an event that is still to come was not heard
        is_all_told = after == snapshot.sequence or not snapshot.has_events
        if snapshot.task.status.state.is_terminal and is_all_told:
            raise UnsupportedOperation("The task has ended; there is nothing to follow.")
        yield source.task(snapshot) if source.resume_after is None else COMMENT
        pace = Pace()
        for event in source.follow(watch, after, reads_first=after < snapshot.sequence):
            if event is None:
                if source.pending.is_shutting_down:
                    return
                yield pace.comment()
                continue
            pace.note()
            yield source.event(event)
            if event.is_last:
                return


def _find(call: AgentCall, task_id: UUID) -> Snapshot:
    with call.checked.services.database.autocommit() as session:
        snapshot = find_snapshot(session, call.readable, task_id)
    if snapshot is None:
        raise TaskNotFound
    return snapshot


class Pace:
    """When something was last sent."""

    def __init__(self) -> None:
        self.note()

    def note(self) -> None:
        """Something is being sent."""
        self._said_at = time.monotonic()

    @property
    def is_silent(self) -> bool:
        """Whether it is time to be heard again."""
        return time.monotonic() - self._said_at >= COMMENT_SECONDS

    def comment(self) -> bytes | None:
        """Give a comment if it is time for one; a None for the client, which waits on."""
        if not self.is_silent:
            return None
        self.note()
        return COMMENT


class _Answer:
    """The frames of one answer: the task as it was when the message was taken, as soon as there is to be a task."""

    def __init__(self, source: Source, sent: AcceptedMessage) -> None:
        self._source = source
        self._sent = sent
        self._turns_before = sent.turns_before
        self.is_shown = self._is_over = False
        self._pace = Pace()

    def is_over(self) -> bool:
        """Tell whether nothing follows."""
        return self._is_over

    def begin(self) -> Iterator[bytes]:
        """Show a task that is known to the client, or the whole answer if it was given before."""
        if self._sent.is_replay and (answered := self._find_answer()) is not None:
            self._is_over = True
            yield answered
        elif self._sent.is_visible:
            yield self._show()

    def hear(self, event: Event) -> Iterator[bytes]:
        """Pass an event on."""
        self._pace.note()
        if not self.is_shown and event.kind != "message":
            yield self._show()
        yield self._source.event(event)
        if event.is_interruption and self._turns_before:
            self._turns_before -= 1  # an earlier message's answer
            return
        self._is_over = event.is_last or event.is_interruption

    def wait(self, *, shows_now: bool) -> Iterator[bytes]:
        """Say that there is nothing to tell, and show the task, when it is time or now. Raises InvalidAgentResponse."""
        if not self.is_shown:
            with self._source.database.autocommit() as session:
                require_valid_response(session, self._sent.turn_id)
        if not self._pace.is_silent and not shows_now:
            return
        self._pace.note()
        if self.is_shown:
            yield COMMENT
            return
        with self._source.database.transaction() as session:
            is_task = show_task(session, self._sent.task_id)
        if is_task:  # otherwise it was answered just now, with a message or not at all
            yield self._show()

    def _show(self) -> bytes:
        self.is_shown = True
        return self._source.task(self._sent.snapshot)

    def _find_answer(self) -> bytes | None:
        with self._source.database.autocommit() as session:
            answered = find_response(session, self._sent.turn_id, history_length=self._sent.history_length)
        return self._source.answer(answered) if answered is not None else None
