"""The world outside: where attachments are fetched from, and where a distribution hears what became of them.

Both misbehave as real ones do. What the endpoint takes, it verifies and remembers by its `webhook-id`.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from tests.support.media_sources import Handler, Respond, begin

SLOW_PIECES = 8
SLOW_PAUSE_SECONDS = 0.15
ENDPOINT_NAP_SECONDS = 0.5
_MISBEHAVIOUR = {"answers": 85, "refuses": 8, "hangs up": 5, "dawdles": 2}


def slowly(body: bytes, media_type: str) -> Respond:
    """Send a body piece by piece."""

    def respond(handler: Handler) -> None:
        begin(handler, 200, {"Content-Type": media_type, "Content-Length": str(len(body))})
        step = len(body) // SLOW_PIECES + 1
        for start in range(0, len(body), step):
            handler.wfile.write(body[start : start + step])
            handler.wfile.flush()
            time.sleep(SLOW_PAUSE_SECONDS)

    return respond


def signature(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
    """Sign as Standard Webhooks defines it."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signed = f"{webhook_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    owner: Endpoint

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever posts may be killed at any moment."""


class Endpoint:
    """A distribution's notification endpoint, in threads of its own."""

    def __init__(self, secret: str, chance: random.Random) -> None:
        self._secret = secret
        self._random = chance
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.owner = self
        self.told: dict[str, bytes] = {}
        """Bodies by webhook-id."""
        self.times = Counter[str]()
        self.faults: list[str] = []

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

    def events(self) -> list[tuple[str, dict[str, Any]]]:
        """Give every message that was taken, by its id."""
        with self._lock:
            return [(webhook_id, json.loads(body)) for webhook_id, body in self.told.items()]

    def take(self, headers: Mapping[str, str], body: bytes) -> str:
        """Remember a message; give how to behave."""
        webhook_id, timestamp = headers["webhook-id"], headers["webhook-timestamp"]
        expected = signature(self._secret, webhook_id, timestamp, body)
        with self._lock:
            behaviour = self._random.choices(list(_MISBEHAVIOUR), list(_MISBEHAVIOUR.values()))[0]
            if not hmac.compare_digest(headers["webhook-signature"], expected):
                self.faults.append(f"notification {webhook_id} is not signed with our secret")
            if self.told.setdefault(webhook_id, body) != body:
                self.faults.append(f"notification {webhook_id} came again and said something else")
            self.times[webhook_id] += 1
        return behaviour


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        with suppress(OSError):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            behaviour = self.server.owner.take(dict(self.headers.items()), body)
            if behaviour == "hangs up":
                return
            if behaviour == "dawdles":
                time.sleep(ENDPOINT_NAP_SECONDS)
            begin(self, 500 if behaviour == "refuses" else 204, {"Content-Length": "0"})

    def log_message(self, *_: object) -> None:
        """Say nothing."""
