"""Set TCP keepalive options, so that a silently broken connection is closed after 25 s.

Without these options, a stream over a broken connection waits until the stream's own timeout for silence.
"""

import socket

KEEPALIVE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        # Send 3 probes 5 s apart after 10 s without data. Skip options that this operating system lacks.
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""Level, name and value of each option, for `setsockopt`."""
