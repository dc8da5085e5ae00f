"""Deadlines for slow clients, and a limit on the bodies that one process receives at once.

The rule this module protects: slow clients never occupy all threads. The process counts the seconds that it
waits for each client. It cuts a body off when these exceed a grace period plus the time that the bytes so far
take at the lowest accepted rate. A declared size extends no deadline, and the time that the process spends on
writing does not count. The number of bodies is limited, and shared among their senders
(`shared/fairness/admission.py`). A body that arrived completely with its head needs no slot.

Under gunicorn, one thread per process shuts down the reading side of a slow connection, and the blocked read
ends as if the client had hung up. Under other servers only the number of bodies is limited.
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
    take_arrived,
)
from web.http.slots import pool_key
from web.http.wsgi_middleware import BODY_READ

log = get_logger(__name__)

# Long enough for a client to send a lost packet again.
DEFAULT_GRACE_SECONDS = 2.0
DEFAULT_MINIMUM_BYTES_PER_SECOND = 64 << 10
LONGEST_TICK_SECONDS = 0.5
# If more bytes than this are unread, close the connection: reading them costs more than a new connection.
LONGEST_DROPPED_REST_BYTES = 1 << 20
PIECE_BYTES = 16 << 10


class BodyReceiver:
    """The bodies that this process is receiving.

    Create one receiver per process. Its thread starts with the first body.
    """

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
        # One scan per tick costs less than a timer for each body: bodies are few, and most bodies arrive
        # quickly.
        self._watcher = PeriodicThread(
            self._cut_off_slow,
            name="slow-senders",
            pause_seconds=min(LONGEST_TICK_SECONDS, grace_seconds / 4),
            has_work=lambda: self._active,
        )

    @contextmanager
    def admit(self, environ: WSGIEnvironment) -> Iterator[ReceivedBody]:
        """Receive a request's body within the block. Raises ConcurrencyLimited, PoolExhausted if there is no slot.

        If the block ends before the body does, a short rest is read and discarded, so that the response
        arrives and the connection can be kept. If the rest is long, the connection is closed.
        """
        body = ReceivedBody(open_body(environ), environ.get("gunicorn.socket"))
        if has_arrived(environ):  # The whole body is here, so it needs no slot and no deadline.
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
        # The thread sleeps while there are no bodies, so wake it for the first body.
        if is_first:
            self._watcher.wake()

    def _cut_off_slow(self) -> None:
        with self._lock:
            for body in self._active:
                # Check under the lock: otherwise the connection could already serve its next request. If
                # bytes have arrived unread, this process is slow, and not the client.
                is_too_slow = body.waited_seconds() > self._allowed_seconds(body)
                if is_too_slow and not body.has_unread_bytes():
                    body.cut_off()

    def _allowed_seconds(self, body: ReceivedBody) -> float:
        # Allow time for one more piece: some of it may have arrived, but a read returns a piece only when it
        # is complete.
        return self._grace_seconds + (body.received_bytes + STREAM_PIECE_BYTES) * self._seconds_per_byte


class ReceivedBody:
    """One body that is being received, with a clock that runs only while the process waits for the client."""

    def __init__(self, body: RequestBody, connection: socket.socket | None) -> None:
        """Read from `body`. To cut off a slow client, shut down `connection` unless it is None."""
        self.received_bytes = 0
        self.is_cut_off = False
        self._source = body
        self._connection = connection
        self._waited_seconds = 0.0
        self._waiting_since: float | None = None

    @property
    def remaining_bytes(self) -> int | None:
        """The number of body bytes that are still to come, or None if it is unknown."""
        return self._source.remaining_bytes

    def readinto(self, buffer: memoryview) -> int:
        """Wait for bytes and write them to the start of the buffer. Return their number, or 0 at the end of the body.

        Raises UploadTimeout if the client was cut off, MalformedRequest if the client broke the body's
        framing.
        """
        self._waiting_since = started_at = monotonic()
        try:
            read = self._source.readinto(buffer)
        finally:
            self._waiting_since = None
            self._waited_seconds += monotonic() - started_at
            # A connection that this process shut down looks like a connection that the client closed.
            if self.is_cut_off:
                raise UploadTimeout
        self.received_bytes += read
        return read

    def drop_rest(self) -> None:
        """Read and discard the rest of the body, if it is short."""
        if (
            self.is_cut_off
            or self.remaining_bytes == 0
            or (self.remaining_bytes or 0) > LONGEST_DROPPED_REST_BYTES
        ):
            return
        buffer = memoryview(bytearray(STREAM_PIECE_BYTES))
        end = self.received_bytes + LONGEST_DROPPED_REST_BYTES
        # Discarding is best effort. Suppress errors, because an error here must not replace the handler's
        # result.
        with suppress(DomainError):
            while self.received_bytes < end and self.readinto(buffer):
                pass

    def waited_seconds(self) -> float:
        """Return for how many seconds the process has waited for the client."""
        since = self._waiting_since
        return self._waited_seconds + (monotonic() - since if since is not None else 0.0)

    def has_unread_bytes(self) -> bool:
        """Return whether bytes have arrived that the process has not read yet."""
        return self._connection is not None and has_unread_bytes(self._connection)

    def cut_off(self) -> None:
        """End the blocked read, which then raises UploadTimeout."""
        if self._connection is None or self._waiting_since is None or self.is_cut_off:
            return
        self.is_cut_off = True
        log.warning("upload.cut_off", received_bytes=self.received_bytes)
        stop_reading(self._connection)


def read_small_body(receiver: BodyReceiver, environ: WSGIEnvironment, maximum_bytes: int) -> bytes:
    """Return a request's complete body.

    Raises ContentTooLarge, UploadTimeout, MalformedRequest, ConcurrencyLimited, PoolExhausted.
    """
    # Refuse a declared length that is too large before reading anything.
    if int(environ.get("CONTENT_LENGTH") or 0) > maximum_bytes:
        raise ContentTooLarge(maximumBytes=maximum_bytes)
    arrived = take_arrived(environ)
    if arrived is not None:
        environ[BODY_READ] = True
        return arrived
    content = bytearray()
    piece = memoryview(bytearray(PIECE_BYTES))
    with receiver.admit(environ) as body:
        while read := body.readinto(piece):
            content += piece[:read]
            # A chunked body declares no length, so check the received length.
            if len(content) > maximum_bytes:
                raise ContentTooLarge(maximumBytes=maximum_bytes)
    return bytes(content)
