"""Whether something waits to be read from a connection.

Who watches for silence asks it before cutting a connection: what has arrived and was not read yet, because its reader
was busy or the process slept, is not the other side's silence.
"""

import socket

from urllib3.util import wait_for_read


def has_unread_bytes(connection: socket.socket) -> bool:
    """Whether bytes, or the end, have arrived on a connection; False for one that has been closed."""
    try:
        return wait_for_read(connection, 0)
    except (OSError, ValueError):
        return False
