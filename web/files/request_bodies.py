"""The bytes of a request body, read piece by piece into buffers that are used again.

gunicorn's own body copies every byte three times through short-lived buffers, which costs more CPU than everything
else an upload does. A body of known length is therefore read straight from the connection, with gunicorn's count of
what is left kept true, so that the next request on the connection starts where it should. Anything else (chunked
bodies, other servers) is read the WSGI way.

Left to others: how long a sender may take (`slow_senders`), what the bytes mean (`multipart`).
"""

from __future__ import annotations

import socket
from typing import Any, Protocol
from wsgiref.types import WSGIEnvironment

from gunicorn.http.errors import ParseException  # type: ignore[import-untyped]
from werkzeug.exceptions import ClientDisconnected
from werkzeug.wsgi import get_input_stream

from web.requests import MalformedRequest

STREAM_PIECE_BYTES = 64 << 10


class RequestBody(Protocol):
    """A body being received."""

    @property
    def is_exhausted(self) -> bool:
        """Whether the whole body was read, so that the connection can take another request."""

    def readinto(self, buffer: memoryview) -> int:
        """Wait for some bytes, put them at the front of the buffer and tell how many; 0 at the end of the body.

        Raises MalformedRequest if the sender breaks the body's framing, and UploadTimeout if it is too slow.
        """


def open_body(environ: WSGIEnvironment) -> RequestBody:
    """Choose the best way to read a request's body."""
    body = environ["wsgi.input"]
    connection = environ.get("gunicorn.socket")
    if connection is not None and _is_unread_with_known_length(body, connection):
        return _ConnectionBody(body, connection)
    return _StreamBody(get_input_stream(environ, safe_fallback=True))


def spoil_connection(environ: WSGIEnvironment) -> None:
    """Have gunicorn close the connection after this answer, because nobody knows where its next request would begin."""
    body = environ["wsgi.input"]
    if hasattr(body, "failed"):
        body.failed = True


class _ConnectionBody:
    """Reads from the connection itself, at most up to the end of the body."""

    def __init__(self, body: Any, connection: socket.socket) -> None:
        self._body = body
        self._reader = body.reader
        self._connection = connection

    @property
    def is_exhausted(self) -> bool:
        return bool(self._reader.length == 0)

    def readinto(self, buffer: memoryview) -> int:
        wanted: int = min(len(buffer), self._reader.length)
        if wanted <= 0:
            return 0
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
            self._body.failed = True
        return read


class _StreamBody:
    """Reads from `wsgi.input` as any WSGI application would."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self.is_exhausted = False

    def readinto(self, buffer: memoryview) -> int:
        try:
            piece = self._stream.read(min(len(buffer), STREAM_PIECE_BYTES))
        except ClientDisconnected:
            return 0
        except (OSError, ParseException):
            raise MalformedRequest("The body breaks off or its framing is broken.") from None
        buffer[: len(piece)] = piece
        self.is_exhausted = not piece
        return len(piece)


def _is_unread_with_known_length(body: Any, connection: Any) -> bool:
    """Tell whether this is gunicorn's body of an HTTP/1 request with Content-Length, of which nothing was read yet."""
    reader = getattr(body, "reader", None)
    unreader = getattr(reader, "unreader", None)
    return (
        isinstance(getattr(reader, "length", None), int)
        and hasattr(unreader, "take_buffered")
        and getattr(unreader, "sock", None) is connection
        and hasattr(body, "failed")
        and body.buf.tell() == 0
    )
