"""One thread that carries on the streams of a process, once they have begun.

To wake a thread costs several times what is done for a chunk, and 16 threads wake each other up. So a call's own
thread opens its stream, and ends it, and sleeps in between: this one takes what has come for all of them, every few
milliseconds, and whatever a stream wants to wait for (a cut event, the end, an error) is its call's own affair again.
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
    """A socket, or what has one: it is readable when more has come."""

    def fileno(self) -> int:
        """Give the descriptor."""


class _PumpedStream:
    __slots__ = ("error", "is_over", "step")

    def __init__(self, step: Callable[[], bool]) -> None:
        self.step = step
        self.error: BaseException | None = None
        self.is_over = threading.Event()


class StreamLoop:
    """The loop of one process; its thread begins with the first stream."""

    def __init__(self, batching: Callable[[], AbstractContextManager[None]]) -> None:
        """Take each turn within `batching()`, which may gather what the streams say."""
        self._batching = batching
        self._streams: dict[int, _PumpedStream] = {}
        self._epoll = select.epoll()
        self._thread = PeriodicThread(
            self._poll_once, name="stream-loop", pause_seconds=0.0, has_work=lambda: self._streams
        )

    def pump(self, source: Pollable, step: Callable[[], bool]) -> None:
        """Have `step` called whenever something has come, until it says False; it must not wait.

        Blocks until then, and raises what it raised.
        """
        stream = _PumpedStream(step)
        descriptor = source.fileno()
        self._streams[descriptor] = stream
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
        finally:  # a call that is carried no more sleeps until it is told
            for stream in over:
                stream.is_over.set()
        time.sleep(max(0.0, began_at + INTERVAL_SECONDS - time.monotonic()))

    def _step(self, descriptor: int) -> _PumpedStream | None:
        """Carry one stream on; give it back when it is its call's own affair again."""
        stream = self._streams[descriptor]
        try:
            if stream.step():
                return None
        except BaseException as error:  # noqa: BLE001 (its call raises it)
            stream.error = error
        self._epoll.unregister(descriptor)
        del self._streams[descriptor]
        return stream
