"""One thread that reads all streams of a process, once they have begun.

Waking a thread costs several times the work for a chunk, and 16 threads wake each other. So a call's own thread opens
and ends its stream and sleeps in between. This thread polls all streams every few milliseconds. Whenever a stream needs
to wait (for the rest of an event, its end, an error), it returns to its call's thread.
"""

import select
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from shared.runtime.periodic_thread import PeriodicThread

INTERVAL_SECONDS = 0.012
POLL_SECONDS = 1.0


class Pollable(Protocol):
    """An object with a socket, which is readable when more bytes have arrived."""

    def fileno(self) -> int:
        """Return the file descriptor."""


class _PumpedStream:
    __slots__ = ("error", "is_over", "step")

    def __init__(self, step: Callable[[], bool]) -> None:
        self.step = step
        self.error: BaseException | None = None
        self.is_over = threading.Event()


class StreamLoop:
    """The loop of one process. Its thread starts with the first stream."""

    def __init__(self, batching: Callable[[], AbstractContextManager[None]]) -> None:
        """Create a loop that runs each round within `batching()`, which may gather the messages of the round."""
        self._batching = batching
        self._streams: dict[int, _PumpedStream] = {}
        self._epoll = select.epoll()
        self._thread = PeriodicThread(
            self._poll_once, name="stream-loop", pause_seconds=0.0, has_work=lambda: self._streams
        )

    def pump(self, source: Pollable, step: Callable[[], bool]) -> None:
        """Call `step` whenever bytes have arrived, until it returns False. `step` must not block.

        Blocks until then, and raises the exception that `step` raised.
        """
        stream = _PumpedStream(step)
        descriptor = source.fileno()
        self._streams[descriptor] = stream
        # EPOLLRDHUP: a hang-up of the other end must wake the loop even if no byte comes.
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLRDHUP)
        self._thread.wake()
        stream.is_over.wait()
        if stream.error is not None:
            raise stream.error

    def _poll_once(self) -> None:
        began_at = time.monotonic()
        ready = self._epoll.poll(POLL_SECONDS)
        if not ready:
            return
        over: list[_PumpedStream] = []
        try:
            with self._batching():
                over += [stream for descriptor, _ in ready if (stream := self._step(descriptor)) is not None]
        finally:  # also after an error: the threads of ended streams sleep until they are woken
            # After the messages of this round were sent: the call's thread may only send what follows them.
            for stream in over:
                stream.is_over.set()
        # A fixed pace gathers the chunks of all streams into one round.
        time.sleep(max(0.0, began_at + INTERVAL_SECONDS - time.monotonic()))

    def _step(self, descriptor: int) -> _PumpedStream | None:
        """Advance one stream. Return it if its call's thread must continue, else None."""
        stream = self._streams[descriptor]
        try:
            if stream.step():
                return None
        except BaseException as error:  # noqa: BLE001 (its call raises it)
            stream.error = error
        self._epoll.unregister(descriptor)
        del self._streams[descriptor]
        return stream
