"""Sends deferred responses (`shared/runtime/deferred_responses.py`) from one thread of the process.

A request's thread hands over the connection with its response. A wake-up or a timer makes the writer read the
next pieces. The writer reads in its own thread if the response cannot block. Otherwise it reads in one of a
few pool threads, because a server that the response depends on may be down. The writer reads a limited number
of pieces of one response before it turns to the next response. It reads none while too many bytes are
buffered for the client. The writer sends without blocking. A client that hangs up, or receives nothing for
`send_seconds`, ends its response. The writer returns the connection when the response is over.
"""

import heapq
import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum, auto
from functools import partial
from itertools import count
from typing import Any

from shared.observability.telemetry import get_logger
from shared.runtime.deferred_responses import DeferredResponse

log = get_logger(__name__)

BLOCKING_THREADS = 8
# Responses that become due within the same tick are read together.
TICK_SECONDS = 0.05
# The writer reads no further pieces of a response while more bytes than this are buffered for its client.
OUTBOX_BYTES = 64 << 10
PIECES_AT_ONCE = 50
_GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class Outbox(bytearray):
    """Replaces the socket of gunicorn's response and buffers the bytes that gunicorn sends."""

    sendall = bytearray.extend


class State(Enum):
    """The state of a deferred response. A response that waits for a pool thread is READING too."""

    IDLE = auto()
    QUEUED = auto()
    READING = auto()
    CLOSED = auto()


class DeferredConnection:
    """A connection with its deferred response.

    `response` is gunicorn's response object, which frames the pieces.
    """

    __slots__ = (
        *("pieces", "conn", "fd", "is_finished", "is_broken", "is_woken", "outbox"),
        *("response", "resume_at", "stalled_at", "state"),
    )

    def __init__(self, conn: Any, response: Any, pieces: DeferredResponse) -> None:
        self.conn = conn
        self.pieces = pieces
        self.fd: int = conn.sock.fileno()
        self.outbox = response.sock = Outbox()
        self.response = response
        self.state = State.IDLE
        self.is_woken = self.is_finished = self.is_broken = False
        self.resume_at = 0.0
        self.stalled_at: float | None = None

    @property
    def is_full(self) -> bool:
        """Whether the client must receive buffered bytes before more of the response is read."""
        return len(self.outbox) > OUTBOX_BYTES

    def release(self) -> None:
        """Drop all references to a finished response.

        The wake-up and the timers keep this object alive for a while, and it would keep the response in
        memory.
        """
        del self.conn, self.pieces, self.response, self.outbox

    def read_pieces(self) -> None:
        """Move up to PIECES_AT_ONCE pieces into the outbox. A failure marks the connection as broken."""
        for _ in range(PIECES_AT_ONCE):
            if self.is_full or self.is_broken:
                return
            try:
                piece = next(self.pieces, None)
                if not piece:
                    break
                self.response.write(piece)
            except Exception:  # After the head, a failed response can only be aborted, as in gunicorn.
                log.exception("answer.failed")
                self.is_broken = True
                return
        else:
            # More pieces may be ready. Mark the response as due and let other connections go first.
            self.is_woken = True
            return
        if piece is None:
            self.response.close()
            self.is_finished = True


class ResponseWriter:
    """Sends all deferred responses of a process."""

    def __init__(self, return_connection: Callable[[Any, bool], None], *, send_seconds: float) -> None:
        """Call `return_connection(conn, is_sent)` for each connection when its response is over.

        `is_sent` is false if the response is incomplete.
        """
        self._return_connection = return_connection
        self._send_seconds = send_seconds
        self._lock = threading.Lock()
        self._new: deque[DeferredConnection] = deque()
        self._ready: deque[DeferredConnection] = deque()
        self._read_done: deque[DeferredConnection] = deque()
        self._connections: dict[int, DeferredConnection] = {}
        self._timers: list[tuple[float, int, DeferredConnection]] = []
        self._numbers = count()
        self._is_asleep = self._is_shutting_down = self._must_notify = False
        self._thread: threading.Thread | None = None

    def add(self, connection: DeferredConnection) -> None:
        """Send the response of a connection from now on."""
        if self._thread is None:
            self._start()
        self._new.append(connection)
        self._wake()

    def shut_down(self, *, for_good: bool = False) -> None:
        """End all deferred responses cleanly. If `for_good`, also end those that are added later."""
        self._is_shutting_down = for_good
        self._must_notify = True
        self._wake()

    def _start(self) -> None:
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._wake_fd, select.EPOLLIN)
        self._threads = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="blocking-responses")
        self._thread = threading.Thread(target=self._run, name="response-writer", daemon=True)
        self._thread.start()

    def _wake(self) -> None:
        if self._is_asleep:
            self._is_asleep = False  # Set before the write, so that no other thread wakes the writer again.
            os.eventfd_write(self._wake_fd, 1)

    def _on_wake_up(self, connection: DeferredConnection) -> None:
        with self._lock:
            if connection.state is State.IDLE:
                connection.state = State.QUEUED
                self._ready.append(connection)
            else:
                connection.is_woken = True
        self._wake()

    # The methods below run in the writer's thread, except `_read_in_thread`.

    def _run(self) -> None:
        while True:
            try:
                self._run_once()
            # Log the error and continue: without this thread, no deferred response would ever be sent.
            except Exception:
                log.exception("answers.not_written")

    def _run_once(self) -> None:
        for fd, events in self._sleep():
            if fd == self._wake_fd:
                os.eventfd_read(self._wake_fd)
            elif (connection := self._connections.get(fd)) is not None:
                connection.is_broken = connection.is_broken or bool(events & _GONE)
                self._flush(connection)
        while self._new:
            self._register(self._new.popleft())
        if self._must_notify:
            self._must_notify = False
            for connection in self._connections.values():
                connection.pieces.shut_down()
        while self._read_done:
            self._after_read(self._read_done.popleft())
        # Handle only the responses that are ready now: one that is ready again at once must not delay the
        # others.
        for _ in range(len(self._ready)):
            self._read(self._ready.popleft())
        self._run_timers(time.monotonic())

    def _sleep(self) -> list[tuple[int, int]]:
        self._is_asleep = (
            # Set before the queues are checked: a thread that adds to a queue later then wakes the writer.
            True
        )
        try:
            if self._new or self._read_done or self._ready or self._must_notify:
                return self._poll.poll(0)
            until = self._timers[0][0] + TICK_SECONDS if self._timers else None
            return self._poll.poll(None if until is None else max(0.0, until - time.monotonic()))
        finally:
            self._is_asleep = False

    def _register(self, connection: DeferredConnection) -> None:
        self._connections[connection.fd] = connection
        self._poll.register(connection.fd, select.EPOLLRDHUP)
        now = time.monotonic()
        connection.resume_at = now + connection.pieces.idle_seconds
        self._schedule(connection, now)
        connection.pieces.wake_up.wake_through(partial(self._on_wake_up, connection))
        if self._is_shutting_down:
            connection.pieces.shut_down()
        self._on_wake_up(connection)  # A wake-up before the line above had no listener, so read once.

    def _read(self, connection: DeferredConnection) -> None:
        if not self._claim(connection, State.QUEUED):
            return
        if connection.pieces.is_blocking:
            self._threads.submit(self._read_in_thread, [connection])
        else:
            self._read_now(connection)

    def _read_now(self, connection: DeferredConnection) -> None:
        """Read a response that never blocks, in the writer's own thread."""
        connection.read_pieces()
        self._after_read(connection)

    def _claim(self, connection: DeferredConnection, state: State) -> bool:
        """Reserve a response for one reader if it is in this state. Return False if it is in another state."""
        with self._lock:
            if connection.state is not state:
                return False
            connection.state = State.READING
            connection.is_woken = False
            return True

    def _read_in_thread(self, connections: list[DeferredConnection]) -> None:
        """Read responses that may block. Runs in a thread of the pool."""
        for connection in connections:
            connection.read_pieces()
            self._read_done.append(connection)
            self._wake()

    def _after_read(self, connection: DeferredConnection) -> None:
        """Send the pieces that were read. Read again if a wake-up arrived meanwhile."""
        connection.resume_at = time.monotonic() + connection.pieces.idle_seconds
        with self._lock:
            connection.state = State.IDLE
        self._flush(connection)
        if connection.is_woken and connection.state is State.IDLE and not connection.is_full:
            self._on_wake_up(connection)

    def _flush(self, connection: DeferredConnection) -> None:
        """Send as many bytes as the socket takes. End the response if it is finished or broken."""
        if connection.state in (State.READING, State.CLOSED):
            return  # A pool thread may be writing to the outbox, so leave it alone.
        if not connection.is_broken and connection.outbox:
            self._send(connection)
        if connection.is_broken or (connection.is_finished and not connection.outbox):
            self._end(connection)

    def _send(self, connection: DeferredConnection) -> None:
        was_full = connection.is_full
        try:
            sent = connection.conn.sock.send(connection.outbox, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError:
            connection.is_broken = True
            return
        del connection.outbox[:sent]
        was_stalled = connection.stalled_at is not None
        if not connection.outbox:
            connection.stalled_at = None
        elif sent or not was_stalled:
            connection.stalled_at = time.monotonic()
        # Ask for EPOLLOUT only while bytes are left: otherwise every poll would return at once.
        if was_stalled != bool(connection.outbox):
            self._poll.modify(
                connection.fd, select.EPOLLRDHUP | (select.EPOLLOUT if connection.outbox else 0)
            )
        if was_full and not connection.is_full:
            self._on_wake_up(connection)

    def _end(self, connection: DeferredConnection) -> None:
        with self._lock:
            connection.state = State.CLOSED
        del self._connections[connection.fd]
        self._poll.unregister(connection.fd)
        # Closing an unfinished response may cancel a call at another server and wait for it, so use a pool
        # thread.
        if connection.is_finished or not connection.pieces.is_blocking:
            _close(connection.pieces)
        else:
            self._threads.submit(_close, connection.pieces)
        self._return_connection(
            connection.conn,
            connection.is_finished and not connection.is_broken and not connection.response.should_close(),
        )
        connection.release()

    def _run_timers(self, now: float) -> None:
        due: list[DeferredConnection] = []
        while self._timers and self._timers[0][0] <= now:
            _, _, connection = heapq.heappop(self._timers)
            if connection.state is State.CLOSED:
                continue
            if connection.stalled_at is not None and connection.stalled_at + self._send_seconds <= now:
                connection.is_broken = True
                self._flush(connection)
                continue
            if connection.resume_at <= now and not connection.is_full and self._claim(connection, State.IDLE):
                due.append(connection)
            self._schedule(connection, now)
        if blocking := [connection for connection in due if connection.pieces.is_blocking]:
            self._threads.submit(self._read_in_thread, blocking)
        for connection in due:
            if not connection.pieces.is_blocking:
                self._read_now(connection)

    def _schedule(self, connection: DeferredConnection, now: float) -> None:
        at = connection.resume_at if connection.resume_at > now else now + connection.pieces.idle_seconds
        at = min(at, (connection.stalled_at or now) + self._send_seconds)
        # Never schedule in the past: this loop would spin while a pool thread reads a response that is due.
        at = max(at, now + TICK_SECONDS)
        heapq.heappush(self._timers, (at, next(self._numbers), connection))


def _close(pieces: DeferredResponse) -> None:
    """Close a response. If it was not read to its end, closing may first cancel a call."""
    try:
        pieces.close()
    except Exception:  # Log the failure: it must not end the writer's thread.
        log.exception("answer.not_closed")
