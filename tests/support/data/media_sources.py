"""A local HTTP server of media files that behaves well, slowly or maliciously, as a test chooses.

`with MediaSource() as source:` and `url = source.serve("/photo", answer)`. A response function writes to the
connection itself, so that it can send what no framework would permit.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler
from types import TracebackType

from tests.support.servers.local_servers import LocalServer

Handler = BaseHTTPRequestHandler
Respond = Callable[[Handler], None]


class MediaSource(LocalServer):
    """The server, with threads of its own; it counts requests by path."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.is_over = threading.Event()
        self._answers: dict[str, Respond] = {}

    def serve(self, path: str, answer: Respond) -> str:
        """Serve this path by a response function, and return its URL."""
        self._answers[path] = answer
        return self.url + path

    def count(self, path: str) -> int:
        """Return the number of requests for a path."""
        return sum(asked == path for asked, _ in self.requests)

    def headers_of(self, path: str) -> Mapping[str, str]:
        """Return the headers of the last request for a path, with names in lower case."""
        return next(headers for asked, headers in reversed(self.requests) if asked == path)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.is_over.set()
        super().__exit__(kind, error, trace)

    def answer(self, handler: Handler) -> None:
        self.requests.append((handler.path, {name.lower(): value for name, value in handler.headers.items()}))
        self._answers.get(handler.path, status(404))(handler)


def content(body: bytes, media_type: str = "application/octet-stream", **headers: str) -> Respond:
    """Respond with a body and its length."""

    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": media_type, "Content-Length": str(len(body)), **headers})
        handler.wfile.write(body)

    return respond


def chunked(*pieces: bytes, media_type: str = "application/octet-stream") -> Respond:
    """Respond with a chunked body, whose length is not announced."""

    def respond(handler: Handler) -> None:
        handler.protocol_version = "HTTP/1.1"
        begin(handler, 200, {"Content-Type": media_type, "Transfer-Encoding": "chunked"})
        for piece in (*pieces, b""):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.close_connection = True

    return respond


def status(code: int, **headers: str) -> Respond:
    """Respond with a status and no body."""

    def respond(handler: Handler) -> None:
        begin(handler, code, {"Content-Length": "0", **headers})

    return respond


def redirect(location: str) -> Respond:
    """Respond with a redirect."""
    return status(302, Location=location)


def cut_off(body: bytes, announced_bytes: int) -> Respond:
    """Announce more bytes than are sent."""

    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": "image/png", "Content-Length": str(announced_bytes)})
        handler.wfile.write(body)
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    return respond


def endless(source: MediaSource, piece: bytes, *, pause_seconds: float = 0.0) -> Respond:
    """Send forever, until the client closes or the test ends."""

    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": "video/mp4"})
        while not source.is_over.wait(pause_seconds):
            handler.wfile.write(piece)

    return respond


def in_turn(*answers: Respond) -> Respond:
    """Use the first response for the first request, and so on; the last one for all later requests."""
    left = list(answers)
    lock = threading.Lock()

    def respond(handler: Handler) -> None:
        with lock:
            answer = left.pop(0) if len(left) > 1 else left[0]
        answer(handler)

    return respond


def begin(handler: Handler, code: int, headers: Mapping[str, str]) -> None:
    """Send the status line and the headers."""
    handler.send_response(code)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
