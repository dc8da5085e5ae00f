"""Sends the answers that wait (`deferred_responses.py`) from one thread of the process, however many they are.

A connection is given over with its answer. Code that rings the answer's wake_up, or the time, has it asked for its next
pieces: here if that costs no wait, else on one of a few threads, whose servers may be away; nobody is asked for more
than some pieces in a turn, nor while what the client has not taken yet is too much (`deferred_connections.py`). Pieces
are sent without blocking. A client that hangs up, or takes nothing for `send_seconds`, ends its answer. The connection
is given back when the answer has been sent.
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
from functools import partial
from itertools import count
from typing import Any

from shared.observability.telemetry import get_logger
from shared.runtime.deferred_responses import DeferredResponse
from web.server.deferred_connections import HeldConnection, State

log = get_logger(__name__)

BLOCKING_THREADS = 8
TICK_SECONDS = 0.05
"""Answers whose time comes within a tick of each other are asked together."""
_GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR


class AnswerWriter:
    """The answers of a process that wait; `give_back(conn, is_sent)` takes a connection when its answer is over."""

    def __init__(self, give_back: Callable[[Any, bool], None], *, send_seconds: float) -> None:
        self._give_back = give_back
        self._send_seconds = send_seconds
        self._lock = threading.Lock()
        self._new: deque[HeldConnection] = deque()
        self._ready: deque[HeldConnection] = deque()
        self._asked: deque[HeldConnection] = deque()
        self._held: dict[int, HeldConnection] = {}
        self._times: list[tuple[float, int, HeldConnection]] = []
        self._numbers = count()
        self._is_asleep = self._is_winding_up = self._must_tell = False
        self._thread: threading.Thread | None = None

    def hold(self, held: HeldConnection) -> None:
        """Send an answer from here on."""
        if self._thread is None:
            self._begin()
        self._new.append(held)
        self._rouse()

    def shut_down(self, *, for_good: bool = False) -> None:
        """Have all answers end in good order; `for_good` also those that are yet to come."""
        self._is_winding_up = for_good
        self._must_tell = True
        self._rouse()

    def _begin(self) -> None:
        self._rouser = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.epoll()
        self._poll.register(self._rouser, select.EPOLLIN)
        self._threads = ThreadPoolExecutor(BLOCKING_THREADS, thread_name_prefix="held-answers")
        self._thread = threading.Thread(target=self._run, name="answer-writer", daemon=True)
        self._thread.start()

    def _rouse(self) -> None:
        if self._is_asleep:
            self._is_asleep = False  # said first: the next who comes need not rouse it again
            os.eventfd_write(self._rouser, 1)

    def _ring(self, held: HeldConnection) -> None:
        with self._lock:
            if held.state is State.IDLE:
                held.state = State.QUEUED
                self._ready.append(held)
            else:
                held.is_rung = True
        self._rouse()

    # In the writer's thread:

    def _run(self) -> None:
        while True:
            try:
                self._turn()
            except Exception:  # without this thread no answer that waits would ever be sent
                log.exception("answers.not_written")

    def _turn(self) -> None:
        for fd, events in self._sleep():
            if fd == self._rouser:
                os.eventfd_read(self._rouser)
            elif (held := self._held.get(fd)) is not None:
                held.is_gone = held.is_gone or bool(events & _GONE)
                self._attend(held)
        while self._new:
            self._take(self._new.popleft())
        if self._must_tell:
            self._must_tell = False
            for held in self._held.values():
                held.answer.shut_down()
        while self._asked:
            self._settle(self._asked.popleft())
        for _ in range(len(self._ready)):
            self._begin_asking(self._ready.popleft())
        self._look_at_times(time.monotonic())

    def _sleep(self) -> list[tuple[int, int]]:
        self._is_asleep = True  # said before the last look, so that who adds something later rouses us
        try:
            if self._new or self._asked or self._ready or self._must_tell:
                return self._poll.poll(0)
            until = self._times[0][0] + TICK_SECONDS if self._times else None
            return self._poll.poll(None if until is None else max(0.0, until - time.monotonic()))
        finally:
            self._is_asleep = False

    def _take(self, held: HeldConnection) -> None:
        self._held[held.fd] = held
        self._poll.register(held.fd, select.EPOLLRDHUP)
        now = time.monotonic()
        held.resume_at = now + held.answer.idle_seconds
        self._note_time(held, now)
        held.answer.wake_up.wake_through(partial(self._ring, held))
        if self._is_winding_up:
            held.answer.shut_down()
        self._ring(held)  # what came before

    def _begin_asking(self, held: HeldConnection) -> None:
        if not self._claim(held, State.QUEUED):
            return
        if held.answer.is_blocking:
            self._threads.submit(self._ask_all, [held])
        else:
            self._ask_here(held)

    def _ask_here(self, held: HeldConnection) -> None:
        """Ask an answer that waits for nothing."""
        held.ask()
        self._settle(held)

    def _claim(self, held: HeldConnection, state: State) -> bool:
        """Claim an answer that is in this state, so that no other thread asks it."""
        with self._lock:
            if held.state is not state:
                return False
            held.state = State.ASKED
            held.is_rung = False
            return True

    def _ask_all(self, asked: list[HeldConnection]) -> None:
        """Ask in a thread that may wait."""
        for held in asked:
            held.ask()
            self._asked.append(held)
            self._rouse()

    def _settle(self, held: HeldConnection) -> None:
        """Continue after an answer was asked."""
        held.resume_at = time.monotonic() + held.answer.idle_seconds
        with self._lock:
            held.state = State.IDLE
        self._attend(held)
        if held.is_rung and held.state is State.IDLE and not held.is_full:
            self._ring(held)

    def _attend(self, held: HeldConnection) -> None:
        """Send what can be sent, and end what is over."""
        if held.state in (State.ASKED, State.OVER):
            return  # a thread may be writing to the outbox
        if not held.is_gone and held.outbox:
            self._send(held)
        if held.is_gone or (held.is_ended and not held.outbox):
            self._end(held)

    def _send(self, held: HeldConnection) -> None:
        was_full = held.is_full
        try:
            sent = held.conn.sock.send(held.outbox, socket.MSG_DONTWAIT)
        except BlockingIOError:
            sent = 0
        except OSError:
            held.is_gone = True
            return
        del held.outbox[:sent]
        was_stalled = held.stalled_at is not None
        if not held.outbox:
            held.stalled_at = None
        elif sent or not was_stalled:
            held.stalled_at = time.monotonic()
        if was_stalled != bool(held.outbox):
            self._poll.modify(held.fd, select.EPOLLRDHUP | (select.EPOLLOUT if held.outbox else 0))
        if was_full and not held.is_full:
            self._ring(held)

    def _end(self, held: HeldConnection) -> None:
        with self._lock:
            held.state = State.OVER
        del self._held[held.fd]
        self._poll.unregister(held.fd)
        if held.is_ended or not held.answer.is_blocking:
            _close(held.answer)
        else:
            self._threads.submit(_close, held.answer)
        self._give_back(held.conn, held.is_ended and not held.is_gone and not held.response.should_close())
        held.let_go()

    def _look_at_times(self, now: float) -> None:
        due: list[HeldConnection] = []
        while self._times and self._times[0][0] <= now:
            _, _, held = heapq.heappop(self._times)
            if held.state is State.OVER:
                continue
            if held.stalled_at is not None and held.stalled_at + self._send_seconds <= now:
                held.is_gone = True
                self._attend(held)
                continue
            if held.resume_at <= now and not held.is_full and self._claim(held, State.IDLE):
                due.append(held)
            self._note_time(held, now)
        if blocking := [held for held in due if held.answer.is_blocking]:
            self._threads.submit(self._ask_all, blocking)
        for held in due:
            if not held.answer.is_blocking:
                self._ask_here(held)

    def _note_time(self, held: HeldConnection, now: float) -> None:
        at = held.resume_at if held.resume_at > now else now + held.answer.idle_seconds
        at = min(at, (held.stalled_at or now) + self._send_seconds)
        # Or one whose time is over, and whom a thread asks, would never let go of us.
        at = max(at, now + TICK_SECONDS)
        heapq.heappush(self._times, (at, next(self._numbers), held))


def _close(answer: DeferredResponse) -> None:
    """Close an answer that was not read to its end: its owner may have something to cancel, and wait for it."""
    try:
        answer.close()
    except Exception:
        log.exception("answer.not_closed")
