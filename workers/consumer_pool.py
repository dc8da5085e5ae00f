"""A consumer pool: threads that each take work, do it, and take the next.

Only a few threads wait, because each that does costs a connection and a look every few seconds; when the last of them
finds work, another begins to wait.
"""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from shared.observability.telemetry import get_logger

log = get_logger(__name__)
Work = TypeVar("Work")

WAITING = 16
"""Threads that stay to wait for work when there is none."""
RETRY_SECONDS = 1.0


class ConsumerPool(Generic[Work]):
    """The threads of one kind of work."""

    def __init__(
        self, take: Callable[[], Work | None], do: Callable[[Work], None], *, limit: int, name: str
    ) -> None:
        """`take` waits a few seconds for work at the most; `do` handles its own failures."""
        self._take = take
        self._do = do
        self._limit = limit
        self._name = name
        self._threads: set[threading.Thread] = set()
        self._waiting = 0
        self._lock = threading.Lock()
        self._is_stopping = threading.Event()

    def start(self) -> None:
        """Begin to take work."""
        with self._lock:
            self._add()

    def stop(self) -> None:
        """Take no more, and wait until what was taken is done."""
        self._is_stopping.set()
        while threads := self._started():
            for thread in threads:
                thread.join()

    def _started(self) -> list[threading.Thread]:
        # Under the lock, a thread that is in the set has been started.
        with self._lock:
            return list(self._threads)

    def _add(self) -> None:
        # `stop` waits for it at an orderly end; no other end must have to.
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._threads.add(thread)
        self._waiting += 1
        thread.start()

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set():
                work = self._taken()
                if work is None:
                    continue
                self._begin()
                try:
                    self._do(work)
                finally:
                    is_needed = self._end()
                if not is_needed:
                    return
        finally:
            with self._lock:
                self._threads.discard(threading.current_thread())

    def _taken(self) -> Work | None:
        try:
            return self._take()
        except Exception as error:  # noqa: BLE001 (whatever keeps work away, this thread must go on asking)
            log.warning("work.not_taken", kind=self._name, error=str(error))
            self._is_stopping.wait(RETRY_SECONDS)
            return None

    def _begin(self) -> None:
        with self._lock:
            self._waiting -= 1
            if not self._waiting and len(self._threads) < self._limit and not self._is_stopping.is_set():
                self._add()

    def _end(self) -> bool:
        """Wait again, unless enough others do."""
        with self._lock:
            is_needed = self._waiting < WAITING
            self._waiting += is_needed
        return is_needed
