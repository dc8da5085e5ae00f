"""Reading a chunked body in as few pieces as possible, without waiting for any.

Upstreams send each event as a chunk of its own, and http.client gives one chunk at a time however many have arrived.
What follows an event (translating, sending it on) costs by the piece, so here everything that is there comes at once.
"""

from __future__ import annotations

import socket
import ssl
from http.client import HTTPException, HTTPResponse
from typing import Any

MAX_GATHERED_BYTES = 64 << 10


class GatheringResponse(HTTPResponse):
    """A response whose `read1` gives all whole chunks that have arrived."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        """Remember the socket: only it can be asked without waiting."""
        super().__init__(sock, *args, **kwargs)
        self._socket = sock
        self._broken_by: Exception | None = None

    def read1(self, n: int = -1) -> bytes:
        """Wait for some bytes, then add what else is there; a break after them is told by the next call."""
        if self._broken_by is not None:
            error, self._broken_by = self._broken_by, None
            raise error
        piece = super().read1(n)
        if not self.chunked or not piece:
            return piece
        pieces, size_bytes = [piece], len(piece)
        try:
            while piece and size_bytes < MAX_GATHERED_BYTES and self._has_a_chunk():
                piece = super().read1(n)
                pieces.append(piece)
                size_bytes += len(piece)
        except (HTTPException, OSError, ValueError) as error:
            self._broken_by = error
        return b"".join(pieces)

    def _has_a_chunk(self) -> bool:
        """Whether a read would not wait: bytes of this chunk are there, or the next one's head and some of it."""
        there = self._peek()
        if self.chunk_left:
            return bool(there)
        head, _, rest = there[2:].partition(b"\r\n")
        is_last = not head.partition(b";")[0].strip(b"0")  # after it come trailers, up to an empty line
        return rest.startswith(b"\r\n") if is_last else bool(rest)

    def _peek(self) -> bytes:
        if self.isclosed():
            return b""
        patience = self._socket.gettimeout()
        self._socket.settimeout(0)
        try:
            return self.fp.peek(1)
        except ssl.SSLWantReadError:
            return b""
        finally:
            self._socket.settimeout(patience)
