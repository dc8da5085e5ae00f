"""Operations on a client's connection that never wait for the client, except `is_readable`."""

import select
import socket


def hang_up(sock: socket.socket, timeout: float = 0.0, max_drain: int = 1 << 16) -> None:  # noqa: ARG001 (gunicorn's)
    """Close a connection without waiting.

    Bytes that have arrived are read first: unread bytes would reset the connection, and the client would lose
    the last response.
    """
    try:
        sock.shutdown(socket.SHUT_WR)
        sock.settimeout(0)
        drained = 0
        while drained < max_drain and (data := sock.recv(1 << 16)):
            drained += len(data)
    except OSError:
        pass  # There is nothing more to read, or the client is gone.
    finally:
        sock.close()


def is_readable(sock: socket.socket, milliseconds: int) -> bool:
    """Wait up to `milliseconds`. Return whether the socket has bytes to read."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(milliseconds))


def has_hung_up(sock: socket.socket) -> bool:
    """Return whether the client has closed its side and no unread bytes are left."""
    try:
        # Call the plain socket's method: the method of a TLS socket takes no flags.
        return not socket.socket.recv(sock, 1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
