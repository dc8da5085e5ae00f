"""A local HTTP server whose responses a test writes, on a free port and with threads of its own."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

ADDRESS = os.environ.get("TESTS_ADDRESS", "127.0.0.1")
"""Where servers of the tests' own listen: this machine, or where hosts made of namespaces find it (`tests/hosts`)."""


class LocalServer:
    """Serves within its block; `answer` handles a request."""

    def __init__(self) -> None:
        self._server = _Server((ADDRESS, 0), _Handler)
        self._server.owner = self

    @property
    def url(self) -> str:
        """Return the base URL."""
        return f"http://{ADDRESS}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Respond to a GET or a POST."""
        raise NotImplementedError


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: LocalServer

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore clients that disconnect or are killed."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        with suppress(OSError):
            self.server.owner.answer(self)

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        """Log nothing."""
