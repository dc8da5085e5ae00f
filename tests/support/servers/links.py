"""A TCP link to a server that can be cut like a cable: packets are dropped, and neither side is notified.

It can also be reset, go silent for a while, or lose the response to the next request.
"""

import ctypes
import random
import socket
import struct
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_RETURN = 0x06  # linux/filter.h: BPF_RET | BPF_K, here of 0 bytes
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)
Address = str | tuple[str, int]
"""The path of a unix socket, or a host and a port."""


class Link:
    """Forwards bytes within its block."""

    def __init__(self, server: Address) -> None:
        """Forward to the server at this address, which need not listen yet."""
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Lock()
        self._connections: set[_Connection] = set()
        self._silent_until = 0.0

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open():
            connection.end()

    def cut(self) -> None:
        """Have the kernel drop every inbound packet before it is acknowledged."""
        for connection in self._open():
            connection.cut()

    def reset(self, share: float) -> None:
        """Reset about this share of the connections (RST)."""
        for connection in self._some(share):
            connection.reset()

    def be_silent(self, share: float, seconds: float) -> None:
        """Forward nothing on about this share of the connections for some seconds; accept no new ones meanwhile."""
        until = time.monotonic() + seconds
        self._silent_until = until
        for connection in self._some(share):
            connection.silent_until = until

    def lose_answers(self, share: float, request: bytes) -> None:
        """On about this share of the connections, forward the next request with these bytes, and drop its response."""
        for connection in self._some(share):
            connection.losing = request

    def _some(self, share: float) -> "list[_Connection]":
        return [each for each in self._open() if random.random() < share]

    def _open(self) -> "list[_Connection]":
        with self._lock:
            return list(self._connections)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        time.sleep(max(0.0, self._silent_until - time.monotonic()))
        connection = _Connection(near, socket.socket(_family_of(self._server)))
        with self._lock:
            self._connections.add(connection)
        try:
            connection.serve(self._server)
        finally:
            with self._lock:
                self._connections.discard(connection)


class _Connection:
    """One connection: near is the client's side, far the server's."""

    def __init__(self, near: socket.socket, far: socket.socket) -> None:
        self._near, self._far = near, far
        self.silent_until = 0.0
        self.losing: bytes | None = None
        self._loses_answer = False
        self._is_reset = False

    def serve(self, server: Address) -> None:
        """Connect, and forward bytes until both sides have closed."""
        with self._near, self._far:
            try:
                self._far.connect(server)
            except OSError:
                self.reset()
                return
            for each in (self._near, self._far):
                if each.family == socket.AF_INET:
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            answering = threading.Thread(target=self._pass_answers, daemon=True)
            answering.start()
            self._pass_requests()
            answering.join()

    def end(self) -> None:
        """Close the connection cleanly."""
        for each in (self._near, self._far):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        """Reset the connection (RST), and drop what is in transit."""
        self._is_reset = True
        with suppress(OSError):
            self._near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
            # shutdown() sends the client nothing here, and wakes the thread that reads.
            self._near.shutdown(socket.SHUT_RD)
        with suppress(OSError):
            self._far.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        code = ctypes.create_string_buffer(struct.pack("=HBBI", _RETURN, 0, 0, 0))
        program = struct.pack("@HP", 1, ctypes.addressof(code))
        with suppress(OSError):  # It may have ended already.
            self._near.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def _pass_requests(self) -> None:
        with suppress(OSError):
            while received := self._near.recv(1 << 16):
                self._wait_while_silent()
                if self.losing is not None and self.losing in received:
                    self._loses_answer = True
                self._far.sendall(received)
        with suppress(OSError):
            self._far.shutdown(socket.SHUT_WR)

    def _pass_answers(self) -> None:
        with suppress(OSError):
            while received := self._far.recv(1 << 16):
                self._wait_while_silent()
                if self._loses_answer:
                    self.reset()
                    return
                self._near.sendall(received)
        if self._is_reset:
            return
        with suppress(OSError):
            self._near.shutdown(socket.SHUT_WR)

    def _wait_while_silent(self) -> None:
        time.sleep(max(0.0, self.silent_until - time.monotonic()))


def _family_of(server: Address) -> socket.AddressFamily:
    return socket.AF_UNIX if isinstance(server, str) else socket.AF_INET
