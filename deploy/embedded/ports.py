"""Find free loopback ports for servers on this machine."""

import secrets
import socket

# Below the ephemeral range: an outgoing connection must not take a server's port while it restarts.
LOWEST, HIGHEST = 15_000, 32_000


def find_free_port() -> int:
    """Return a random loopback port on which no server listens now."""
    while True:
        port = LOWEST + secrets.randbelow(HIGHEST - LOWEST)
        if is_free(port):
            return port


def is_free(port: int) -> bool:
    """Return whether a server could listen on this loopback port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
