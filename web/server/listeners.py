"""How a front stops to listen without losing a connection that the kernel has made for it already.

A listener that is closed resets what waits in its queue, and what a client's last packet of the handshake has not
reached yet; both look made to the client, who may have sent a request. So new ones are dropped first (a client's kernel
asks again after a second, and is refused then), the queue is taken, and only then the listener is closed.
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

BACKLOG_SECONDS = 0.5
STOPPING_SECONDS = 3.0
"""For the next request of a kept connection; the proxy gives an idle one up after less (`quartermaster.conf`)."""
WINDING_UP_SECONDS = 5.0
_SO_ATTACH_FILTER = 26
_SYN, _SYN_OR_ACK = 0x02, 0x12
_FLAGS_OFFSET = 13
_DROP_SYN = (
    (0x30, 0, 0, _FLAGS_OFFSET),  # load the flags of the TCP header
    (0x54, 0, 0, _SYN_OR_ACK),
    (0x15, 0, 1, _SYN),  # skip the next one unless it is the first packet of a handshake
    (0x06, 0, 0, 0),  # drop
    (0x06, 0, 0, 0xFFFFFFFF),  # let pass
)
"""A classic BPF program."""


def drop_new_connections(listeners: Iterable[Any]) -> None:
    """Have the kernel drop the beginning of every new connection, in all processes that share the listeners."""
    program = b"".join(struct.pack("HBBI", *step) for step in _DROP_SYN)
    buffer = ctypes.create_string_buffer(program, len(program))
    given = struct.pack("HP", len(_DROP_SYN), ctypes.addressof(buffer))
    for listener in listeners:
        if listener.family in (socket.AF_INET, socket.AF_INET6):
            with contextlib.suppress(OSError):  # not everywhere permitted; then a moment is left to chance
                listener.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, given)


def call_later(seconds: float, act: Callable[[], object]) -> None:
    """Call this in a thread of its own, unless the process has ended by then."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def wind_up_within(seconds: float, shut_down: Callable[..., object]) -> None:
    """Have what waits ended before so many seconds are over: what is cut off looks like a failure to its client."""
    remaining = min(WINDING_UP_SECONDS, seconds / 2)
    call_later(seconds - remaining, shut_down)
    # Until then a request may still come over a connection that is kept, and most are answered within a moment.
    call_later(seconds - remaining / 2, partial(shut_down, for_good=True))


class DrainingWorker(ThreadWorker):  # type: ignore[misc]
    """gunicorn's threaded worker, which takes what waits to be accepted before it closes its listeners."""

    def _cap_keepalive(self, deadline: float) -> None:
        """Begin to stop; called once, before the worker waits for its connections."""
        super()._cap_keepalive(max(deadline, time.monotonic() + STOPPING_SECONDS))
        self.nr_conns += 1  # for the listeners: the worker does not end while they are open
        self.set_accept_enabled(True)
        call_later(BACKLOG_SECONDS, partial(self.method_queue.defer, self._close_listeners))

    def _close_listeners(self) -> None:
        """Refuse connections from here on."""
        for listener in self.sockets:
            self.accept(listener)
        self.set_accept_enabled(False)
        for listener in self.sockets:
            listener.close()
        self.nr_conns -= 1
