"""TCP keepalive options: a silently broken connection is closed after 25 s.

Without them a stream on such a link waits until its own timeout for silence.
"""

import socket

KEEPALIVE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        # 10 s idle, then 3 probes 5 s apart. Not every system has all three names.
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""Level, name and value of each option, for `setsockopt`."""
