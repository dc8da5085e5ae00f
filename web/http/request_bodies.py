"""The bytes of a request body, read piece by piece into reusable buffers.

gunicorn's own body object copies every byte three times, which costs more CPU than the rest of an upload. So
a body of known length is read directly from the connection. The reader updates gunicorn's count of remaining
bytes, so that gunicorn finds the next request. Any other body (chunked, or under another server) is read
through WSGI.
"""

import socket
from contextlib import suppress
from typing import Any, Protocol
from wsgiref.types import WSGIEnvironment

from gunicorn.http.errors import ParseException  # type: ignore[import-untyped]
from werkzeug.exceptions import ClientDisconnected
from werkzeug.wsgi import get_input_stream

from web.http.requests import MalformedRequest

STREAM_PIECE_BYTES = 64 << 10


class RequestBody(Protocol):
    """A body that is being received."""

    @property
    def remaining_bytes(self) -> int | None:
        """The number of bytes that are still to come, or None if it is unknown.

        At 0 the connection can take another request.
        """

    def readinto(self, buffer: memoryview) -> int:
        """Wait for bytes and write them to the start of the buffer. Return their number, or 0 at the end of the body.

        Raises MalformedRequest if the client breaks the body's framing, and UploadTimeout if the client is
        too slow.
        """


def open_body(environ: WSGIEnvironment) -> RequestBody:
    """Return the fastest reader that works for the request's body."""
    body = environ["wsgi.input"]
    connection = environ.get("gunicorn.socket")
    if connection is not None and _is_unread_with_known_length(body, connection):
        return _ConnectionBody(body, connection)
    return _StreamBody(get_input_stream(environ, safe_fallback=True))


def take_arrived(environ: WSGIEnvironment) -> bytes | None:
    """Return the body if it has arrived completely with the request's head, else None."""
    if not has_arrived(environ):
        return None
    reader = environ["wsgi.input"].reader
    return bytes(reader.read(reader.length))


def has_arrived(environ: WSGIEnvironment) -> bool:
    """Return whether the body has arrived completely with the request's head and is unread.

    `web/server/accept_thread.py` reads small bodies together with their heads.
    """
    body, connection = environ["wsgi.input"], environ.get("gunicorn.socket")
    if connection is None or not _is_unread_with_known_length(body, connection):
        return False
    # The unread bytes may include the next request, so they can be more than the body.
    return int(body.reader.unreader.buf.getbuffer().nbytes) >= int(body.reader.length)


def force_close(environ: WSGIEnvironment) -> None:
    """Make gunicorn close the connection after this response, because it cannot find the next request."""
    body = environ["wsgi.input"]
    if hasattr(body, "failed"):
        body.failed = True
    if "gunicorn.socket" in environ:
        stop_reading(environ["gunicorn.socket"])


def stop_reading(connection: socket.socket) -> None:
    """End all reads from a connection, including a read that is blocked. Responses can still be written.

    gunicorn's accepting thread then does not wait until a slow client hangs up.
    """
    with suppress(OSError):
        # Call the plain socket's method: the method of a TLS socket would send the response unencrypted.
        socket.socket.shutdown(connection, socket.SHUT_RD)


class _ConnectionBody:
    """Reads directly from the connection, at most to the end of the body."""

    def __init__(self, body: Any, connection: socket.socket) -> None:
        self._body = body
        self._reader = body.reader
        self._connection = connection

    @property
    def remaining_bytes(self) -> int:
        return int(self._reader.length)

    def readinto(self, buffer: memoryview) -> int:
        wanted: int = min(len(buffer), self._reader.length)
        if wanted <= 0:
            return 0
        # gunicorn has read these bytes together with the head, so take them first.
        early = self._reader.unreader.take_buffered()
        if early:
            read = min(wanted, len(early))
            buffer[:read] = early[:read]
            if early[read:]:
                self._reader.unreader.unread(early[read:])
        else:
            read = self._receive(buffer[:wanted])
        self._reader.length -= read
        return read

    def _receive(self, buffer: memoryview) -> int:
        try:
            read = self._connection.recv_into(buffer)
        except OSError:
            read = 0
        if not read:
            # Make gunicorn close the connection, because it cannot find the next request.
            self._body.failed = True
        return read


class _StreamBody:
    """Reads from `wsgi.input`, as any WSGI application does."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.remaining_bytes: int | None = None

    def readinto(self, buffer: memoryview) -> int:
        try:
            # Read a small piece: a larger read would block until the whole piece has arrived, and the client
            # would seem idle.
            piece = self._stream.read(min(len(buffer), STREAM_PIECE_BYTES))
        except ClientDisconnected:
            return 0
        except (OSError, ParseException):
            raise MalformedRequest("The body is incomplete, or its transfer framing is malformed.") from None
        buffer[: len(piece)] = piece
        if not piece:
            self.remaining_bytes = 0
        return len(piece)


def _is_unread_with_known_length(body: Any, connection: Any) -> bool:
    """Return whether this is gunicorn's body of an HTTP/1 request with Content-Length, still unread."""
    reader = getattr(body, "reader", None)
    unreader = getattr(reader, "unreader", None)
    return (
        isinstance(getattr(reader, "length", None), int)
        and hasattr(unreader, "take_buffered")
        and getattr(unreader, "sock", None) is connection
        and hasattr(body, "failed")
        and body.buf.tell() == 0
    )
