"""Wake readers that wait for a change of a task, by a message through Valkey and by a poll of the rows.

Each web process has one thread. The thread receives all wake-up messages, and polls all watched tasks by one statement
once a second. A waiting request holds no connection. A lost message or an outage of Valkey delays readers by at most
one second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import redis
from sqlalchemy import select

from shared.a2a.tables import tasks
from shared.db.database import Database
from shared.errors import DomainError
from shared.observability.telemetry import get_logger
from shared.observability.tracing import traceparent
from shared.runtime.deferred_responses import WakeUp
from shared.runtime.periodic_thread import PeriodicThread

log = get_logger(__name__)

CHANNEL = "quartermaster:tasks"
TURNS_CHANNEL = "quartermaster:turns"
POLL_SECONDS = 1.0
PAUSE_SECONDS = 1.0
BATCH_SECONDS = 0.005
_ID_BYTES = 16


class TaskNotifier:
    """Publishes that a task has changed; notifications within `BATCH_SECONDS` share one message."""

    def __init__(self, valkey: redis.Redis) -> None:
        """Create a notifier that publishes through `valkey`. The client should have a short timeout."""
        self._valkey = valkey
        self._silent_until = 0.0
        # The dict is an ordered set, so a task that changes often appears once in a message.
        self._pending: dict[bytes, None] = {}
        self._lock = threading.Lock()
        self._thread = PeriodicThread(
            self._send, name="task-notifier", pause_seconds=BATCH_SECONDS, has_work=lambda: self._pending
        )

    def notify(self, task_id: UUID) -> None:
        """Wake the web processes that watch a task. Returns at once; while Valkey is unavailable, they poll."""
        with self._lock:
            self._pending[task_id.bytes] = None
        self._thread.wake()

    def announce_turn(self) -> None:
        """Wake the workers of agents at once; the wake-up job would reach them later."""
        # The payload is too short for a turn id, so it only wakes the workers.
        self._publish(TURNS_CHANNEL, b"1")

    def announce_trace(self, turn_id: UUID) -> None:
        """Publish the current trace of a turn to the workers, before they can claim it.

        Does nothing without a trace.
        """
        trace = traceparent()
        if trace is not None:
            self._publish(TURNS_CHANNEL, turn_id.bytes + trace.encode())

    def _send(self) -> None:
        with self._lock:
            pending, self._pending = self._pending, {}
        self._publish(CHANNEL, b"".join(pending))

    def _publish(self, channel: str, message: bytes) -> None:
        # After an error, publish nothing for a second, because each attempt may wait for the client's timeout.
        if time.monotonic() < self._silent_until:
            return
        try:
            self._valkey.publish(channel, message)
        except redis.RedisError as error:
            self._silent_until = time.monotonic() + PAUSE_SECONDS
            log.warning("hints.not_sent", error=str(error))


class Watch:
    """One request's watch on one task."""

    def __init__(self, owner: TaskWatch, task_id: UUID, wake_up: WakeUp) -> None:
        self.task_id = task_id
        self._wake_up = wake_up
        self._owner = owner
        self._changed = threading.Event()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until the task may have changed since the last wait. Return False after the timeout."""
        changed = self._changed.wait(timeout_seconds)
        # Clear the event before the caller reads the rows, so that a change during the read sets the event again.
        self._changed.clear()
        return changed

    def wake(self) -> None:
        """Wake the waiting request."""
        self._changed.set()
        self._wake_up.notify()

    def __enter__(self) -> Watch:
        """Return the watch, for a `with` block."""
        return self

    def __exit__(self, *_: object) -> None:
        """End the watch."""
        self._owner.forget(self)


class TaskWatch:
    """All watches of this process."""

    def __init__(self, database: Database, valkey: redis.Redis) -> None:
        """Create the watches of a process. The first watch starts the thread, because the process may fork before."""
        self._database = database
        self._valkey = valkey
        self._watches: dict[UUID, set[Watch]] = {}
        self._seen: dict[UUID, Any] = {}
        self._lock = threading.Lock()
        self._thread = PeriodicThread(self._listen, name="task-watch", pause_seconds=POLL_SECONDS)

    def watch(self, task_id: UUID, wake_up: WakeUp | None = None) -> Watch:
        """Start to watch a task. Read its rows after this call, and again after each wake-up."""
        watch = Watch(self, task_id, wake_up or WakeUp())
        with self._lock:
            self._watches.setdefault(task_id, set()).add(watch)
        self._thread.start()
        return watch

    def forget(self, watch: Watch) -> None:
        """End a watch."""
        with self._lock:
            watches = self._watches.get(watch.task_id, set())
            watches.discard(watch)
            if not watches:
                self._watches.pop(watch.task_id, None)
                self._seen.pop(watch.task_id, None)

    def close(self) -> None:
        """Stop watching."""
        self._thread.stop()

    def _listen(self) -> None:
        try:
            with self._valkey.pubsub(ignore_subscribe_messages=True) as subscription:  # type: ignore[no-untyped-call]
                subscription.subscribe(CHANNEL)
                self._receive(subscription)
        except redis.RedisError as error:
            log.warning("hints.interrupted", error=str(error))
            # Without Valkey the thread polls each time it fails to subscribe, once a second.
            self._poll()

    def _receive(self, subscription: Any) -> None:
        polled_at = 0.0
        while not self._thread.is_stopping:
            message = subscription.get_message(timeout=max(0.0, polled_at + POLL_SECONDS - time.monotonic()))
            if message is not None:
                for task_id in _ids(message["data"]):
                    self._wake(task_id)
            if time.monotonic() - polled_at >= POLL_SECONDS:
                self._poll()
                polled_at = time.monotonic()

    def _poll(self) -> None:
        with self._lock:
            watched = list(self._watches)
        if not watched:
            return
        statement = select(tasks.c.id, tasks.c.last_sequence, tasks.c.state).where(tasks.c.id.in_(watched))
        try:
            with self._database.autocommit() as session:
                rows = session.execute(statement).all()
        except DomainError as error:
            log.warning("tasks.not_looked_at", error=error.code)
            return
        for row in rows:
            with self._lock:
                # The first poll of a task always wakes its watches, because the task may have changed before.
                is_news = self._seen.get(row.id) != (row.last_sequence, row.state)
                if row.id in self._watches:
                    self._seen[row.id] = (row.last_sequence, row.state)
            if is_news:
                self._wake(row.id)

    def _wake(self, task_id: UUID) -> None:
        with self._lock:
            for watch in self._watches.get(task_id, ()):
                watch.wake()


def _ids(message: bytes) -> Iterator[UUID]:
    """Yield the task ids of a wake-up message; incomplete bytes at its end are ignored."""
    for start in range(0, len(message) - _ID_BYTES + 1, _ID_BYTES):
        yield UUID(bytes=message[start : start + _ID_BYTES])
