"""Ports for servers of our own on this machine."""

import secrets
import socket

# Below the range of outgoing connections, so that a server which starts again finds its port free.
LOWEST, HIGHEST = 15_000, 32_000


def find_free_port() -> int:
    """Find a port that nobody listens on at the moment."""
    while True:
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Tell whether a server could listen on this port of the loopback address now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
