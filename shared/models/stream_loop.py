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

TURN_SECONDS = 0.012
LOOK_SECONDS = 1.0


class Arrivals(Protocol):
    """A socket, or what has one: it is readable when more has come."""

    def fileno(self) -> int:
        """Give the descriptor."""


class _Carried:
    __slots__ = ("error", "is_over", "step")

    def __init__(self, step: Callable[[], bool]) -> None:
        self.step = step
        self.error: BaseException | None = None
        self.is_over = threading.Event()


class StreamLoop:
    """The loop of one process; its thread begins with the first stream."""

    def __init__(self, together: Callable[[], AbstractContextManager[None]]) -> None:
        """Take each turn within `together()`, which may gather what the streams say."""
        self._together = together
        self._carried: dict[int, _Carried] = {}
        self._poll = select.epoll()
        self._thread = PeriodicThread(
            self._turn, name="stream-loop", pause_seconds=0.0, has_work=lambda: self._carried
        )

    def carry(self, arrivals: Arrivals, step: Callable[[], bool]) -> None:
        """Have `step` called whenever something has come, until it says False; it must not wait.

        Blocks until then, and raises what it raised.
        """
        carried = _Carried(step)
        descriptor = arrivals.fileno()
        self._carried[descriptor] = carried
        self._poll.register(descriptor, select.EPOLLIN | select.EPOLLRDHUP)
        self._thread.wake()
        carried.is_over.wait()
        if carried.error is not None:
            raise carried.error

    def _turn(self) -> None:
        began_at = time.monotonic()
        came = self._poll.poll(LOOK_SECONDS)
        if not came:
            return
        over: list[_Carried] = []
        try:
            with self._together():
                over += [carried for descriptor, _ in came if (carried := self._step(descriptor)) is not None]
        finally:  # a call that is carried no more sleeps until it is told
            for carried in over:
                carried.is_over.set()
        time.sleep(max(0.0, began_at + TURN_SECONDS - time.monotonic()))

    def _step(self, descriptor: int) -> _Carried | None:
        """Carry one stream on; give it back when it is its call's own affair again."""
        carried = self._carried[descriptor]
        try:
            if carried.step():
                return None
        except BaseException as error:  # noqa: BLE001 (its call raises it)
            carried.error = error
        self._poll.unregister(descriptor)
        del self._carried[descriptor]
        return carried
