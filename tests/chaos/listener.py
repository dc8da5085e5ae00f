"""Somewhere that the service posts to: it misbehaves as real endpoints do, and remembers what it was told."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.support.media_sources import begin

NAP_SECONDS = 0.5
_MISBEHAVIOUR = {"answers": 85, "refuses": 8, "hangs up": 5, "dawdles": 2}


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: Listener

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever posts may be killed at any moment."""


class Listener:
    """The server, in threads of its own; `take` is what it does with a message."""

    def __init__(self, chance: random.Random) -> None:
        self._random = chance
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/events"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Remember a message."""
        raise NotImplementedError

    def hear(self, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """Take a message, whatever the answer; give how to behave."""
        with self._lock:
            self.take(path, headers, body)
            return self._random.choices(list(_MISBEHAVIOUR), list(_MISBEHAVIOUR.values()))[0]


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        with suppress(OSError):
            size = int(self.headers["Content-Length"])
            body = self.rfile.read(size)
            if len(body) < size:
                return  # whoever posted it was killed in the middle
            behaviour = self.server.owner.hear(self.path, dict(self.headers.items()), body)
            if behaviour == "hangs up":
                return
            if behaviour == "dawdles":
                time.sleep(NAP_SECONDS)
            begin(self, 500 if behaviour == "refuses" else 204, {"Content-Length": "0"})

    def log_message(self, *_: object) -> None:
        """Say nothing."""
