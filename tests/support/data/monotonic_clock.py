"""A monotonic clock whose time passes only when a test says so, and acts at a moment that a test waits for."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.processes.stack import wait_until


class MonotonicClock:
    """A monotonic clock that stands still until it is told to move, however slow the machine is."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def move(self, seconds: float) -> None:
        """Let so much time pass."""
        self.seconds += seconds


@contextmanager
def once(happened: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """Act as soon as something has happened, while the block waits for what comes of it."""

    def act_in_time() -> None:
        wait_until(happened, "what the test waits for happens")
        act()

    thread = threading.Thread(target=act_in_time)
    thread.start()
    try:
        yield
    finally:
        thread.join()
