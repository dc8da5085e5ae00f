"""The program that xdist starts instead of Python: it hands its standard streams to a fork and exits with it.

Run as `fork_client.py ADDRESS OPTIONS…` (see `forked_workers.py`). If no fork accepts the streams, it becomes the
Python process that xdist requested, with those options.
"""

import contextlib
import os
import socket
import sys


def main() -> None:
    """Wait for the end of the fork, if there is one."""
    address, *options = sys.argv[1:]
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as origin,
        contextlib.suppress(ConnectionError, FileNotFoundError),
    ):
        origin.connect(address)
        socket.send_fds(origin, [b"streams"], [0, 1, 2])
        if origin.recv(64):
            origin.recv(64)
            return
    os.execv(sys.executable, [sys.executable, *options])


if __name__ == "__main__":
    main()
