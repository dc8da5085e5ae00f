"""Find free loopback ports for servers on this machine."""

import secrets
import socket

# Use ports below the ephemeral range, so that no outgoing connection takes a server's port while the server restarts.
LOWEST, HIGHEST = 15_000, 32_000


def find_free_port() -> int:
    """Return a random loopback port on which no server listens at the moment."""
    while True:
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port at the moment."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
