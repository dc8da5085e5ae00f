"""Notice that the other end of a silent connection is gone: a link that was cut without a word is given up after 25 s.

Without it a stream whose link was cut waits for as long as it may be silent.
"""

import socket

KEEPALIVE_OPTIONS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3))
        if hasattr(socket, name)
    ),
)
"""Level, name and value of each, for `setsockopt`."""
