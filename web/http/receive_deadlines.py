"""Deadlines for slow clients, and how many bodies one process receives at once.

The rule it protects: slow senders never hold all threads. A body is cut off when the time spent waiting for its sender
exceeds a grace plus what its bytes so far would take at the lowest accepted rate; a declared size buys no time, and
the time we ourselves spend on writing is not held against the sender. There is room for a bounded number of bodies,
shared among those who send them (`shared/fairness/admission.py`). A body that arrived whole with its head has no sender
to wait for: it needs no room.

Cutting off works under gunicorn: one thread per process shuts the reading side of the connection, upon which the
waiting read ends as if the sender had gone. Under other servers only the room is bounded.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from time import monotonic
from wsgiref.types import WSGIEnvironment

from shared.errors import DomainError
from shared.fairness.admission import Pool
from shared.files.errors import ContentTooLarge, UploadTimeout
from shared.observability.telemetry import get_logger
from shared.runtime.periodic_thread import PeriodicThread
from shared.runtime.readable_sockets import has_unread_bytes
from web.http.request_bodies import (
    STREAM_PIECE_BYTES,
    RequestBody,
    force_close,
    has_arrived,
    open_body,
    stop_reading,
    take_gathered,
)
from web.http.slots import pool_key
from web.http.wsgi_middleware import BODY_READ

log = get_logger(__name__)

DEFAULT_GRACE_SECONDS = 2.0
DEFAULT_MINIMUM_BYTES_PER_SECOND = 64 << 10
LONGEST_TICK_SECONDS = 0.5
LONGEST_DROPPED_REST_BYTES = 1 << 20
PIECE_BYTES = 16 << 10


class BodyReceiver:
    """The bodies this process is receiving. Make one per process; its thread starts with the first body."""

    def __init__(
        self,
        pool: Pool,
        *,
        grace_seconds: float = DEFAULT_GRACE_SECONDS,
        minimum_bytes_per_second: int = DEFAULT_MINIMUM_BYTES_PER_SECOND,
    ) -> None:
        """Receive as many bodies at once as the pool has slots."""
        self._pool = pool
        self._grace_seconds = grace_seconds
        self._seconds_per_byte = 1 / minimum_bytes_per_second
        self._active: set[ReceivedBody] = set()
        self._lock = threading.Lock()
        # Looking at every body each tick costs less than waking this thread for each: they are few, and mostly quick.
        self._watcher = PeriodicThread(
            self._cut_off_slow,
            name="slow-senders",
            pause_seconds=min(LONGEST_TICK_SECONDS, grace_seconds / 4),
            has_work=lambda: self._active,
        )

    @contextmanager
    def admit(self, environ: WSGIEnvironment) -> Iterator[ReceivedBody]:
        """Receive a request's body within the block. Raises ConcurrencyLimited, PoolExhausted when there is no room.

        If the block ends before the body does, a short rest is read and dropped, so that the answer arrives and the
        connection lives on; after a longer one the connection is closed.
        """
        body = ReceivedBody(open_body(environ), environ.get("gunicorn.socket"))
        if has_arrived(environ):  # which needs neither room nor anybody to watch it
            try:
                yield body
            finally:
                body.drop_rest()
                environ[BODY_READ] = True
            return
        with self._pool.acquire(pool_key(environ)):
            self._enter(body)
            try:
                yield body
            finally:
                body.drop_rest()
                with self._lock:
                    self._active.discard(body)
                environ[BODY_READ] = body.remaining_bytes == 0
                if body.is_cut_off or body.remaining_bytes != 0:
                    force_close(environ)

    def _enter(self, body: ReceivedBody) -> None:
        with self._lock:
            self._active.add(body)
            is_first = len(self._active) == 1
        if is_first:
            self._watcher.wake()

    def _cut_off_slow(self) -> None:
        with self._lock:
            for body in self._active:
                # Under the lock, so that it is this body's connection and not yet its next request's.
                is_too_slow = body.waited_seconds() > self._allowed_seconds(body)
                if is_too_slow and not body.has_unread_bytes():
                    body.cut_off()

    def _allowed_seconds(self, body: ReceivedBody) -> float:
        # One piece in advance: it may be partly there, but unseen until it is whole.
        return self._grace_seconds + (body.received_bytes + STREAM_PIECE_BYTES) * self._seconds_per_byte


class ReceivedBody:
    """One body being received, with a clock that runs only while we wait for the sender."""

    def __init__(self, body: RequestBody, connection: socket.socket | None) -> None:
        """Read from `body`; `connection` is what to shut if the sender is too slow, None if that is impossible."""
        self.received_bytes = 0
        self.is_cut_off = False
        self._source = body
        self._connection = connection
        self._waited_seconds = 0.0
        self._waiting_since: float | None = None

    @property
    def remaining_bytes(self) -> int | None:
        """How much of the body is still to come, None if that is not known."""
        return self._source.remaining_bytes

    def readinto(self, buffer: memoryview) -> int:
        """Wait for some bytes, put them at the front of the buffer and tell how many; 0 at the end of the body.

        Raises UploadTimeout if the sender was cut off, MalformedRequest if it broke the body's framing.
        """
        self._waiting_since = started_at = monotonic()
        try:
            read = self._source.readinto(buffer)
        finally:
            self._waiting_since = None
            self._waited_seconds += monotonic() - started_at
            # A connection that we shut looks like one that the sender closed.
            if self.is_cut_off:
                raise UploadTimeout
        self.received_bytes += read
        return read

    def drop_rest(self) -> None:
        """Read on to the end of the body if it is near."""
        if (
            self.is_cut_off
            or self.remaining_bytes == 0
            or (self.remaining_bytes or 0) > LONGEST_DROPPED_REST_BYTES
        ):
            return
        buffer = memoryview(bytearray(STREAM_PIECE_BYTES))
        end = self.received_bytes + LONGEST_DROPPED_REST_BYTES
        with suppress(DomainError):
            while self.received_bytes < end and self.readinto(buffer):
                pass

    def waited_seconds(self) -> float:
        """Tell how long this body's sender was waited for until now."""
        since = self._waiting_since
        return self._waited_seconds + (monotonic() - since if since is not None else 0.0)

    def has_unread_bytes(self) -> bool:
        """Tell whether more has arrived than was read yet."""
        return self._connection is not None and has_unread_bytes(self._connection)

    def cut_off(self) -> None:
        """Make the waiting read end; it then raises UploadTimeout."""
        if self._connection is None or self._waiting_since is None or self.is_cut_off:
            return
        self.is_cut_off = True
        log.warning("upload.cut_off", received_bytes=self.received_bytes)
        stop_reading(self._connection)


def read_small_body(receiver: BodyReceiver, environ: WSGIEnvironment, maximum_bytes: int) -> bytes:
    """Read a request's body to its end.

    Raises ContentTooLarge, UploadTimeout, MalformedRequest, ConcurrencyLimited, PoolExhausted.
    """
    if int(environ.get("CONTENT_LENGTH") or 0) > maximum_bytes:
        raise ContentTooLarge(maximumBytes=maximum_bytes)
    gathered = take_gathered(environ)
    if gathered is not None:
        environ[BODY_READ] = True
        return gathered
    content = bytearray()
    piece = memoryview(bytearray(PIECE_BYTES))
    with receiver.admit(environ) as body:
        while read := body.readinto(piece):
            content += piece[:read]
            if len(content) > maximum_bytes:
                raise ContentTooLarge(maximumBytes=maximum_bytes)
    return bytes(content)
