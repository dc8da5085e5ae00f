"""A server on this machine that media is fetched from: kind, slow or hostile, as a test makes it.

`with MediaSource() as source:` and `url = source.serve("/photo", answer)`. An answer writes to the connection itself,
so that it can do what no framework would let it.
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
    """The server, in threads of its own; it counts who asked for what."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.is_over = threading.Event()
        self._answers: dict[str, Respond] = {}

    def serve(self, path: str, answer: Respond) -> str:
        """Answer this path so; give its URL."""
        self._answers[path] = answer
        return self.url + path

    def count(self, path: str) -> int:
        """Count the requests for a path."""
        return sum(asked == path for asked, _ in self.requests)

    def headers_of(self, path: str) -> Mapping[str, str]:
        """Give the headers of the last request for a path, names in lower case."""
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
    """Answer with a body and its length."""

    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": media_type, "Content-Length": str(len(body)), **headers})
        handler.wfile.write(body)

    return respond


def chunked(*pieces: bytes, media_type: str = "application/octet-stream") -> Respond:
    """Answer with a body whose length nobody tells."""

    def respond(handler: Handler) -> None:
        handler.protocol_version = "HTTP/1.1"
        begin(handler, 200, {"Content-Type": media_type, "Transfer-Encoding": "chunked"})
        for piece in (*pieces, b""):
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        handler.close_connection = True

    return respond


def status(code: int, **headers: str) -> Respond:
    """Answer with a status and nothing else."""

    def respond(handler: Handler) -> None:
        begin(handler, code, {"Content-Length": "0", **headers})

    return respond


def redirect(location: str) -> Respond:
    """Send the client elsewhere."""
    return status(302, Location=location)


def cut_off(body: bytes, announced_bytes: int) -> Respond:
    """Promise more than is sent."""

    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": "image/png", "Content-Length": str(announced_bytes)})
        handler.wfile.write(body)
        handler.wfile.flush()
        handler.connection.shutdown(socket.SHUT_RDWR)

    return respond


def endless(source: MediaSource, piece: bytes, *, pause_seconds: float = 0.0) -> Respond:
    """Never stop sending, until the client or the test has had enough."""

    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": "video/mp4"})
        while not source.is_over.wait(pause_seconds):
            handler.wfile.write(piece)

    return respond


def in_turn(*answers: Respond) -> Respond:
    """Answer the first request by the first, and so on; all later ones by the last."""
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
