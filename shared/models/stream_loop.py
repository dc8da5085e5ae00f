"""A loop in which one thread reads all streams of a process that have begun.

Waking a thread takes several times as long as the work for a chunk. So a call's own thread only opens and ends the
call's stream and sleeps in between, while the loop's thread polls all streams every few milliseconds. If a stream must
wait (for the rest of an event, for its end, or because of an error), the loop returns the stream to the call's thread.
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
    """The loop of one process. The loop's thread starts with the first stream."""

    def __init__(self, batching: Callable[[], AbstractContextManager[None]]) -> None:
        """Create a loop. Each round runs within `batching()`, which may send the messages of a round together."""
        self._batching = batching
        self._streams: dict[int, _PumpedStream] = {}
        self._epoll = select.epoll()
        self._thread = PeriodicThread(
            self._poll_once, name="stream-loop", pause_seconds=0.0, has_work=lambda: self._streams
        )

    def pump(self, source: Pollable, step: Callable[[], bool]) -> None:
        """Call `step` in the loop's thread whenever bytes have arrived at `source`. `step` must not block.

        Returns when `step` has returned False, or raises the exception that `step` raised.
        """
        stream = _PumpedStream(step)
        descriptor = source.fileno()
        self._streams[descriptor] = stream
        # Include EPOLLRDHUP, so that the loop wakes if the upstream closes the connection without sending a byte.
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
        # Wake the threads of ended streams even after an error, otherwise they would sleep forever. Wake them after the
        # round's messages were sent, because a call's thread sends the messages that follow.
        finally:
            for stream in over:
                stream.is_over.set()
        # Sleep until the next round is due, so that a round reads the chunks of many streams.
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
