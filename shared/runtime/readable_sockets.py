"""Check whether a socket has unread bytes.

A watchdog calls this function before it closes a connection for silence of the peer. The reader may have been busy
or the process suspended: if unread bytes have arrived, the peer was not silent.
"""

import socket

from urllib3.util import wait_for_read


def has_unread_bytes(connection: socket.socket) -> bool:
    """Return whether unread bytes or the end of the stream have arrived; False if this side closed the socket."""
    try:
        return wait_for_read(connection, 0)
    except (OSError, ValueError):
        return False
