"""Run a function repeatedly in a daemon thread: lease renewals, watchdogs, writers behind a queue.

The thread starts on first use, because a forked child does not inherit threads. A failure is logged, and the next
round follows after the usual pause.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Generic, TypeVar

from shared.errors import DomainError
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

T = TypeVar("T")


def _always() -> bool:
    return True


class PeriodicThread:
    """A thread that runs `act`, pauses, and repeats while there is work."""

    def __init__(
        self,
        act: Callable[[], object],
        *,
        name: str,
        pause_seconds: float,
        pause_after_failure_seconds: float | None = None,
        has_work: Callable[[], object] = _always,
        starts_with_pause: bool = False,
    ) -> None:
        """Create the thread without starting it. While `has_work` is false, it sleeps until `wake` is called."""
        self._act = act
        self._name = name
        self._pause_seconds = pause_seconds
        self._pause_after_failure_seconds = pause_after_failure_seconds or pause_seconds
        self._has_work = has_work
        self._starts_with_pause = starts_with_pause
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def is_stopping(self) -> bool:
        """Whether the thread was asked to end. A long-running `act` must check this property."""
        return self._stopping.is_set()

    def start(self) -> None:
        """Start the thread, unless it runs or was stopped."""
        if self._thread is None:
            with self._changed:
                self._start()

    def wake(self) -> None:
        """Start the thread if necessary, and check for work now."""
        with self._changed:
            self._start()
            self._changed.notify()

    def stop(self, *, wait: bool = False) -> None:
        """End after the current round; with `wait`, return when it has ended."""
        # Set the event before notifying, because the thread checks it when it wakes up.
        self._stopping.set()
        with self._changed:
            self._changed.notify()
            thread = self._thread
        if wait and thread is not None:
            thread.join()

    def _start(self) -> None:
        if self._thread is None and not self._stopping.is_set():
            # Use a daemon thread: a round that hangs must not block the end of the process.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        if self._starts_with_pause:
            self._stopping.wait(self._pause_seconds)
        while self._wait_for_work():
            self._stopping.wait(self._round())

    def _wait_for_work(self) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._stopping.is_set() or self._has_work())
        return not self._stopping.is_set()

    def _round(self) -> float:
        """Run `act` once; return the seconds to pause."""
        try:
            self._act()
        except DomainError as error:
            log.warning("thread.round_failed", thread=self._name, error=error.code)
        except Exception:  # a failure of one round must not end the thread
            log.exception("thread.round_failed", thread=self._name)
        else:
            return self._pause_seconds
        return self._pause_after_failure_seconds


class InFlight(Generic[T]):
    """The work in progress in a process, with threads that check all pieces together, such as their leases."""

    def __init__(self, checks: dict[str, Callable[[Sequence[T]], object]], *, pause_seconds: float) -> None:
        """Run each check in a thread with this name, which sleeps while there is no work."""
        self._work: set[T] = set()
        self._lock = threading.Lock()
        self._threads = [
            PeriodicThread(
                partial(self._check, check),
                name=name,
                pause_seconds=pause_seconds,
                has_work=lambda: self._work,
                starts_with_pause=True,
            )
            for name, check in checks.items()
        ]

    def __len__(self) -> int:
        return len(self._work)

    def add(self, work: T) -> None:
        """Start checking a piece of work."""
        with self._lock:
            self._work.add(work)
        for thread in self._threads:
            thread.wake()

    def discard(self, work: T) -> None:
        """Stop checking a piece of work; a second call does nothing."""
        with self._lock:
            self._work.discard(work)

    @contextmanager
    def track(self, work: T) -> Iterator[T]:
        """Check a piece of work for the duration of a block."""
        self.add(work)
        try:
            yield work
        finally:
            self.discard(work)

    def all(self) -> list[T]:
        """Return the work in progress."""
        with self._lock:
            return list(self._work)

    def stop(self, *, wait: bool = False) -> None:
        """End the threads; with `wait`, return when they have ended."""
        for thread in self._threads:
            thread.stop(wait=wait)

    def _check(self, check: Callable[[Sequence[T]], object]) -> None:
        if work := self.all():
            check(work)
