"""What xdist starts in place of Python: hands its standard streams to a fork (`forked_workers.py`), and ends with it.

It is run as `fork_client.py ADDRESS OPTIONS…`. Where no fork takes the streams it becomes the Python that xdist wanted,
with those options.
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
