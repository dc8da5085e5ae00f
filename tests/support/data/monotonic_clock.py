"""A monotonic clock that a test advances, and an action that runs once a condition holds."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tests.support.processes.stack import wait_until


class MonotonicClock:
    """A monotonic clock that stands still until a test advances it, however slow the machine is."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def move(self, seconds: float) -> None:
        """Advance the clock by these seconds."""
        self.seconds += seconds


@contextmanager
def once(happened: Callable[[], object], act: Callable[[], object]) -> Iterator[None]:
    """Run an action as soon as a condition holds, while the block waits for its effect."""

    def act_in_time() -> None:
        wait_until(happened, "what the test waits for happens")
        act()

    thread = threading.Thread(target=act_in_time)
    thread.start()
    try:
        yield
    finally:
        thread.join()
