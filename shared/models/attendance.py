"""Look after the calls of a worker process while their threads wait for upstreams.

One thread goes round: it tells each waiting front that its call is alive, notices that a client has gone, and keeps
the dispatch's lease and the count of what was streamed, from which a call is charged whose worker dies. When the
process is asked to stop, calls have a while to end and are then cancelled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol
from uuid import UUID

import redis

from shared.credits import holds
from shared.database import Database
from shared.errors import DomainError
from shared.models.dialects import estimate_completion_tokens
from shared.replies import ReplyKind
from shared.telemetry import get_logger

log = get_logger(__name__)

ROUND_SECONDS = 1.0
ALIVE_SECONDS = 2.0
FIRST_NOTE_SECONDS = 2.0
NOTE_SECONDS = 20.0


class Listener(Protocol):
    """Whoever is told what a call says; a `ReplyWriter` is one."""

    def send(self, kind: ReplyKind, data: bytes = b"") -> bool:
        """Take a reply; False when nobody listens any more. Raises redis.RedisError."""


FindCancelled = Callable[[Sequence[UUID]], Collection[UUID]]


def _nobody(_: Sequence[UUID]) -> Collection[UUID]:
    return ()


class Attended:
    """One call under way, as its own thread and the attendant share it."""

    def __init__(self, dispatch: holds.Dispatch, listener: Listener) -> None:
        """Made by `Attendance.attend`."""
        self.dispatch = dispatch
        self.cancelled = threading.Event()
        self.streamed_bytes = 0
        self.has_sent_data = False
        self.is_noted = False
        self._listener = listener
        self.sent_at, self.noted_at = float("-inf"), time.monotonic()

    def send(self, kind: ReplyKind, data: bytes = b"") -> bool:
        """Send a reply; False, and cancelled, when nobody waits for it or it cannot be sent."""
        self.sent_at = time.monotonic()
        self.has_sent_data |= kind is ReplyKind.DATA
        try:
            is_heard = self._listener.send(kind, data)
        except redis.RedisError as error:
            log.warning("reply.not_sent", invocation_id=self.dispatch.invocation_id, error=str(error))
            is_heard = False
        if not is_heard:
            self.cancelled.set()
        return is_heard


class Attendance:
    """The calls of this process; the thread begins with the first."""

    def __init__(self, database: Database, find_cancelled: FindCancelled = _nobody) -> None:
        """Look after nothing yet; `find_cancelled` tells which of some calls nobody waits for any more."""
        self._database = database
        self._find_cancelled = find_cancelled
        self._calls: set[Attended] = set()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    @contextmanager
    def attend(self, dispatch: holds.Dispatch, listener: Listener) -> Iterator[Attended]:
        """Look after a call within the block."""
        attended = Attended(dispatch, listener)
        with self._lock:
            self._calls.add(attended)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="call-attendant", daemon=True)
                self._thread.start()
        try:
            yield attended
        finally:
            with self._lock:
                self._calls.discard(attended)

    def cancel_all(self) -> None:
        """Cancel every call under way: this process is about to end."""
        with self._lock:
            calls = list(self._calls)
        for attended in calls:
            attended.cancelled.set()

    @property
    def running(self) -> int:
        """How many calls are under way."""
        return len(self._calls)

    def _run(self) -> None:
        while True:
            time.sleep(ROUND_SECONDS)
            with self._lock:
                calls = list(self._calls)
            self._cancel_unwanted(calls)
            for attended in calls:
                try:
                    self._look_after(attended)
                except Exception:  # the other calls must be looked after whatever became of this one
                    log.exception("call.not_looked_after", invocation_id=attended.dispatch.invocation_id)

    def _cancel_unwanted(self, calls: Sequence[Attended]) -> None:
        """Ask for all calls at once: with every reply, as streams send them, it would double their cost."""
        under_way = [attended for attended in calls if not attended.cancelled.is_set()]
        if not under_way:
            return
        try:
            unwanted = self._find_cancelled([attended.dispatch.invocation_id for attended in under_way])
        except redis.RedisError as error:
            log.warning("cancellations.not_read", error=str(error))
            return
        for attended in under_way:
            if attended.dispatch.invocation_id in unwanted:
                attended.cancelled.set()

    def _look_after(self, attended: Attended) -> None:
        now = time.monotonic()
        if now - attended.sent_at > ALIVE_SECONDS:
            attended.send(ReplyKind.ALIVE)
        is_first = attended.streamed_bytes > 0 and not attended.is_noted
        if now - attended.noted_at > (FIRST_NOTE_SECONDS if is_first else NOTE_SECONDS):
            attended.noted_at, attended.is_noted = now, attended.streamed_bytes > 0
            self._note(attended)

    def _note(self, attended: Attended) -> None:
        dispatch = attended.dispatch
        tokens = estimate_completion_tokens(attended.streamed_bytes)
        try:
            with self._database.autocommit() as session:
                holds.note_streamed(session, dispatch.invocation_id, dispatch.token, tokens)
        except DomainError as error:
            log.warning("invocation.not_noted", invocation_id=dispatch.invocation_id, error=error.code)
