"""A proxy in front of the service that fails like networks and gateways: a plan sets the fault of each connection."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

CHUNK_BYTES = 64 << 10
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: 14\r\nConnection: close\r\n\r\n"
    b"<html>no</html>"[:14]
)


@dataclass(frozen=True)
class Cut:
    """Cuts the connection after this number of bytes in a direction; None never cuts."""

    after_sent: int | None = None
    after_received: int | None = None


@dataclass(frozen=True)
class Refusal:
    """Responds with 503 and an HTML page, as a gateway does, and forwards nothing."""


Fault = Cut | Refusal
HEALTHY = Cut()


@dataclass
class FaultyProxy:
    """Forwards connections to a port; `plan` has the faults of the next ones, after which all work."""

    target: int
    plan: list[Fault] = field(default_factory=list)
    connections: int = 0

    def __post_init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @contextmanager
    def running(self) -> Iterator[FaultyProxy]:
        thread = threading.Thread(target=self._accept, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            with contextlib.suppress(OSError):
                # close() alone does not wake the thread that waits in accept().
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            thread.join(60)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                with self._lock:
                    self.connections += 1
                    fault = self.plan.pop(0) if self.plan else HEALTHY
                threading.Thread(target=self._serve, args=(client, fault), daemon=True).start()

    def _serve(self, client: socket.socket, fault: Fault) -> None:
        with client, contextlib.suppress(OSError):
            if isinstance(fault, Refusal):
                # Read first: to close with unread bytes would reset the connection, and the client could lose the
                # response.
                client.recv(CHUNK_BYTES)
                client.sendall(REFUSAL)
                return
            with socket.create_connection(("127.0.0.1", self.target)) as server:
                _forward(client, server, fault)


def _forward(client: socket.socket, server: socket.socket, fault: Cut) -> None:
    left = {client: fault.after_sent, server: fault.after_received}
    other = {client: server, server: client}
    with selectors.DefaultSelector() as selector:
        for side in (client, server):
            selector.register(side, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                side = client if key.fileobj is client else server
                rest = left[side]
                # No more than the rest, so that the connection ends after exactly that byte.
                chunk = side.recv(CHUNK_BYTES if rest is None else min(CHUNK_BYTES, rest))
                if not chunk:
                    return
                other[side].sendall(chunk)
                if rest is not None:
                    left[side] = rest - len(chunk)
                    if not left[side]:
                        return
