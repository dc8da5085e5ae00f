"""The operations port: health, readiness and metrics on an address of their own, unreachable from the public one.

A dedicated thread serves this port, so probes succeed while all working threads are busy. The port has three paths
and requires no credentials; its bind address decides which clients can reach it. The web processes of one host
share a listener; a worker and beat have one each, if the address is theirs (a container's, or one set for them).
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress

from prometheus_client import CONTENT_TYPE_LATEST

from shared.operations.health_checks import HealthChecks

CONNECTIONS = 8
HEAD_BYTES = 8192
HEAD_SECONDS = 5.0
SEND_SECONDS = 10.0
PAUSE_SECONDS = 0.1
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    503: "Service Unavailable",
}
_JSON = "application/json"
_TEXT = "text/plain; charset=utf-8"

PortResponse = tuple[int, str, bytes]


def listen_for_operators() -> socket.socket | None:
    """Listen at OPERATIONS_BIND, or on OPERATIONS_PORT of 127.0.0.1. Raises OSError.

    Returns None if neither is set.
    """
    port = os.environ.get("OPERATIONS_PORT")
    address = os.environ.get("OPERATIONS_BIND") or (port and f"127.0.0.1:{port}")
    if not address:
        return None
    host, _, number = address.rpartition(":")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host.strip("[]"), int(number)), family=family, backlog=64)


class OperationsPort:
    """The server of a listening socket."""

    def __init__(self, probes: HealthChecks) -> None:
        self._probes = probes
        self._slots = threading.BoundedSemaphore(CONNECTIONS)
        self._is_draining: Callable[[], bool] = lambda: False

    def serve(self, listener: socket.socket, *, is_draining: Callable[[], bool]) -> None:
        """Serve in threads of its own until the process ends."""
        self._is_draining = is_draining
        threading.Thread(target=self._accept, args=(listener,), name="operations", daemon=True).start()

    def answer(self, method: str, target: str) -> PortResponse:
        """Return status, media type and body for one request."""
        path = target.partition("?")[0]
        if path not in ("/healthz", "/readyz", "/metrics"):
            return 404, _TEXT, b"Only /healthz, /readyz and /metrics are here.\n"
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"Only GET and HEAD are supported.\n"
        if path == "/healthz":
            return 200, _JSON, _document(status="ok")
        if path == "/metrics":
            return 200, CONTENT_TYPE_LATEST, self._probes.metrics()
        checks = self._probes.readiness()
        status = "draining" if self._is_draining() else self._probes.status(checks)
        return 200 if status == "ok" else 503, _JSON, _document(status=status, checks=checks)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            # Acquire a slot before accepting, so that further clients wait in the listener's backlog and not in
            # threads.
            self._slots.acquire()
            try:
                connection, _ = listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()
            except (OSError, RuntimeError):  # no file descriptor or thread is free; retry
                self._slots.release()
                time.sleep(PAUSE_SECONDS)

    def _converse(self, connection: socket.socket) -> None:
        try:
            with closing(connection), suppress(OSError):
                head = _read_head(connection)
                if not head:
                    return
                words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
                is_sound = len(words) == 3 and words[2].startswith("HTTP/1.")  # noqa: PLR2004 (a request line)
                response = self.answer(*words[:2]) if is_sound else (400, _TEXT, b"Not a request.\n")
                connection.settimeout(SEND_SECONDS)
                connection.sendall(_render(response, with_body=words[0] != "HEAD"))
                # Shut down before close, which would reset the connection if request bytes were unread.
                connection.shutdown(socket.SHUT_WR)
        finally:
            self._slots.release()


def _document(**members: object) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def _read_head(connection: socket.socket) -> bytes:
    """Return the head of a request; empty if it exceeds HEAD_SECONDS or HEAD_BYTES or is incomplete."""
    deadline = time.monotonic() + HEAD_SECONDS
    head = b""
    while b"\r\n\r\n" not in head:
        # Limit each read by the remaining time for the whole head, so that a client that sends byte by byte cannot
        # extend it.
        left = deadline - time.monotonic()
        if left <= 0 or len(head) > HEAD_BYTES:
            return b""
        connection.settimeout(left)
        piece = connection.recv(HEAD_BYTES)
        if not piece:
            return b""
        head += piece
    return head


def _render(response: PortResponse, *, with_body: bool) -> bytes:
    status, media_type, body = response
    head = (
        f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {media_type}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode("latin-1") + (body if with_body else b"")
