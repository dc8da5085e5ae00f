"""Detect whether the other side received any byte of a request that was lost with its connection.

A server may close an idle connection at the very moment a request is sent over it, and nothing comes back either way.
But TCP acknowledges every byte that the other side's kernel accepts. If no byte of a request was acknowledged, no
process has read it, and it can be sent again without a risk of double cost.
"""

import socket
import struct

_BYTES_ACKED = struct.Struct("=120xQ")
"""`tcpi_bytes_acked` in Linux's `struct tcp_info` (tcp(7), linux/tcp.h)."""


def acknowledged_bytes(connection: socket.socket) -> int | None:
    """Return the bytes that the other side has accepted since connecting, or None if they are unknown."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
        (count,) = _BYTES_ACKED.unpack(info)
    except (OSError, AttributeError, struct.error):
        return None
    # A connection that has served a request has a positive count; zero means that the kernel lacks the field.
    return count or None
