"""Stop listening without losing a connection that the kernel has already established.

Closing a listener resets the connections in its backlog, and the connections that still lack their last
handshake packet. To the client, both kinds look established, and a request may have been sent on them. So a
draining worker first drops new connection attempts. It then accepts the backlog, and only then closes the
listener. After a dropped attempt, a client's kernel retries after one second, and is refused then.
"""

import contextlib
import ctypes
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from gunicorn.workers.gthread import ThreadWorker  # type: ignore[import-untyped]

# From the start of the drain until the worker accepts the backlog: time for handshakes that are already under
# way.
BACKLOG_SECONDS = 0.5
# How long a draining worker waits for the next request of a kept connection. The proxy closes idle
# connections earlier (`quartermaster.conf`).
STOPPING_SECONDS = 3.0
# How long deferred responses have to end by themselves.
SHUT_DOWN_SECONDS = 5.0
_SO_ATTACH_FILTER = 26
_SYN, _SYN_OR_ACK = 0x02, 0x12
_FLAGS_OFFSET = 13
# A classic BPF program, evaluated by the kernel for each packet to the listener.
_DROP_SYN = (
    (0x30, 0, 0, _FLAGS_OFFSET),  # load the flags of the TCP header
    (0x54, 0, 0, _SYN_OR_ACK),
    (0x15, 0, 1, _SYN),  # Drop only the first packet of a handshake.
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # let pass
)


def drop_new_connections(listeners: Iterable[Any]) -> None:
    """Make the kernel drop the first packet of every new connection.

    The filter applies in all processes that share the listeners.
    """
    program = b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN)
    buffer = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(buffer))
    for listener in listeners:
        if listener.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(
                OSError
                # Not every system permits the filter. Without it, a connection may be lost between accepting and
                # closing.
            ):
                listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)


def call_later(seconds: float, act: Callable[[], object]) -> None:
    """Call a function in its own thread after `seconds`, unless the process has ended by then."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def shut_down_within(seconds: float, shut_down: Callable[..., object]) -> None:
    """End deferred responses before the drain timeout is over, because an aborted response looks like a failure."""
    remaining = min(SHUT_DOWN_SECONDS, seconds / 2)
    call_later(seconds - remaining, shut_down)
    # Requests on kept connections may arrive until then. Most are answered at once, so only deferred
    # responses are cut short.
    call_later(seconds - remaining / 2, partial(shut_down, for_good=True))


class DrainingWorker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker, which accepts its backlog before it closes its listeners."""

    def _cap_keepalive(self, deadline: float) -> None:
        """Start to drain.

        gunicorn calls this method once, before the worker waits for its connections to end.
        """
        super()._cap_keepalive(max(deadline, time.monotonic() + STOPPING_SECONDS))
        self.nr_conns += (
            1  # Count the listeners as a connection, so that the worker does not end while they are open.
        )
        self.set_accept_enabled(True)
        call_later(BACKLOG_SECONDS, partial(self.method_queue.defer, self._close_listeners))

    def _close_listeners(self) -> None:
        """Accept the backlog and close the listeners."""
        for listener in self.sockets:
            self.accept(listener)
        self.set_accept_enabled(False)
        for listener in self.sockets:
            listener.close()
        self.nr_conns -= 1
