"""A link over TCP to a server on a unix socket, which can be cut as a cable is: nothing arrives, nothing says so."""

import ctypes
import socket
import struct
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

_SO_ATTACH_FILTER = 26  # asm-generic/socket.h
_RETURN = 0x06  # linux/filter.h: BPF_RET | BPF_K, here of 0 bytes


class Link:
    """Passes bytes on while it is entered."""

    def __init__(self, server: str) -> None:
        """Lead to the server at the path of this unix socket."""
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._near: list[socket.socket] = []
        self._far: list[socket.socket] = []

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._listener, *self._near, *self._far):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def cut(self) -> None:
        """Have the kernel drop every packet that comes in, before it would be acknowledged."""
        code = ctypes.create_string_buffer(struct.pack("=HBBI", _RETURN, 0, 0, 0))
        program = struct.pack("@HP", 1, ctypes.addressof(code))
        for near in self._near:
            near.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                far = socket.socket(socket.AF_UNIX)
                far.connect(self._server)
                self._near.append(near)
                self._far.append(far)
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=_pump, args=(source, sink), daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while received := source.recv(1 << 16):
            sink.sendall(received)
        sink.shutdown(socket.SHUT_WR)
