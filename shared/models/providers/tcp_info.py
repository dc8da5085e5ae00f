"""Detect whether an upstream received any byte of a request when the connection broke without a response.

A server may close an idle connection at the very moment at which a request is sent over it. TCP acknowledges every byte
that the server's kernel accepts. If no byte of the request was acknowledged, no process has read the request, and
sending it again cannot cost twice.
"""

import socket
import struct

_BYTES_ACKED = struct.Struct("=120xQ")
"""`tcpi_bytes_acked` in Linux's `struct tcp_info` (tcp(7), linux/tcp.h)."""


def acknowledged_bytes(connection: socket.socket) -> int | None:
    """Return the number of bytes that the other side has acknowledged on this connection, or None if unknown."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
        (count,) = _BYTES_ACKED.unpack(info)
    except (OSError, AttributeError, struct.error):
        return None
    # Return None for zero: the count of a used connection is positive, unless the kernel lacks the field.
    return count or None
