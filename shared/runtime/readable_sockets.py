"""Check whether a socket has unread bytes.

A watchdog for silence asks this before it closes a connection: bytes that have arrived but were not read, because the
reader was busy or the process was suspended, are not the peer's silence.
"""

import socket

from urllib3.util import wait_for_read


def has_unread_bytes(connection: socket.socket) -> bool:
    """Return whether bytes, or the end of the stream, have arrived; False for a closed connection."""
    try:
        return wait_for_read(connection, 0)
    except (OSError, ValueError):
        return False
