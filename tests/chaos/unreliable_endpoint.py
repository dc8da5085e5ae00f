"""An unreliable HTTP endpoint that the service posts to: it misbehaves as real ones do, and records what it accepts."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler

from tests.support.data.media_sources import begin
from tests.support.servers.local_servers import LocalServer

NAP_SECONDS = 0.5
_MISBEHAVIOUR = {"answers": 85, "refuses": 8, "hangs up": 5, "dawdles": 2}


class UnreliableEndpoint(LocalServer):
    """The server; `take` handles an accepted message."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._random = chance
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        """Return the URL to post to."""
        return f"{super().url}/events"

    def take(self, path: str, headers: Mapping[str, str], body: bytes) -> None:
        """Record a message."""
        raise NotImplementedError

    def hear(self, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """Receive a message and return the misbehavior of the response, if any."""
        with self._lock:
            self.take(path, headers, body)
            return self._random.choices(list(_MISBEHAVIOUR), list(_MISBEHAVIOUR.values()))[0]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        size = int(handler.headers["Content-Length"])
        body = handler.rfile.read(size)
        if len(body) < size:
            return  # The sender was killed in the middle of the request.
        behaviour = self.hear(handler.path, dict(handler.headers.items()), body)
        if behaviour == "hangs up":
            return
        if behaviour == "dawdles":
            time.sleep(NAP_SECONDS)
        begin(handler, 500 if behaviour == "refuses" else 204, {"Content-Length": "0"})
