"""What the front does with a client's connection besides reading requests; none of it waits for the client."""

import select
import socket


def hang_up(sock: socket.socket, timeout: float = 0.0, max_drain: int = 1 << 16) -> None:  # noqa: ARG001 (gunicorn's)
    """Close a connection at once, taking what has already arrived so that our last answer is not reset away."""
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(0)
        drained = 0
        while drained < max_drain and (data := sock.recv(1 << 16)):
            drained += len(data)
    except OSError:
        pass  # nothing more to take, or the client is gone
    finally:
        sock.close()


def is_readable(sock: socket.socket, milliseconds: int) -> bool:
    """Wait a moment for something to read."""
    waiting = select.poll()
    waiting.register(sock, select.POLLIN)
    return bool(waiting.poll(milliseconds))


def has_hung_up(sock: socket.socket) -> bool:
    """Tell whether the client has closed its side and everything before that was read."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
