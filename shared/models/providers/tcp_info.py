"""Tell whether a request that was lost with its connection was ever taken by the other side.

A server may close an idle connection at the very moment at which a request is sent over it. Whether it had the request
or not, nothing comes back; but TCP acknowledges every byte that the other side's kernel accepts. A request of which no
byte was acknowledged was read by nobody, and can be sent again whatever it may cost.
"""

import socket
import struct

_BYTES_ACKED = struct.Struct("=120xQ")
"""`tcpi_bytes_acked` in Linux's `struct tcp_info` (tcp(7), linux/tcp.h)."""


def acknowledged_bytes(connection: socket.socket) -> int | None:
    """Count the bytes that the other side has accepted since connecting; None where the system does not tell."""
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size)
        (count,) = _BYTES_ACKED.unpack(info)
    except (OSError, AttributeError, struct.error):
        return None
    return count or None  # a connection that has carried an answer has sent something
