"""Consumers, and the thread pool in which they run. A consumer takes work that does not come as a Celery message.

Only a few threads wait for work, because each waiting thread holds a connection and polls every few seconds. When the
last waiting thread finds work, the pool starts another thread.
"""

import threading
from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

from celery import Celery, bootsteps

from shared.observability.telemetry import get_logger
from workers.handling import WorkerContext


class Consumers(Protocol):
    """A consumer of a queue's work."""

    def start(self) -> None:
        """Start to take work."""

    def drain(self) -> None:
        """Limit the time that work under way may take from now on. Called when the worker is asked to stop."""

    def stop(self) -> None:
        """Stop taking work, and wait for work under way."""


def add_step(app: Celery, context: WorkerContext, queue: str, make: Callable[[int], Consumers]) -> None:
    """Add a consumer to the workers of a queue. `make` gets the worker's number of threads as the consumer's limit."""

    class ConsumersStep(bootsteps.StartStopStep):
        """A step of the worker's start, after the start of its pool and before that of Celery's consumer."""

        requires = ("celery.worker.components:Pool",)
        consumers: Consumers | None = None

        def include_if(self, worker: Any) -> bool:
            return queue in worker.app.amqp.queues.consume_from

        def start(self, worker: Any) -> None:
            self.consumers = make(worker.concurrency)
            self.consumers.start()
            context.when_stopping(self.consumers.drain)

        def stop(self, worker: Any) -> None:  # noqa: ARG002 (Celery's signature)
            if self.consumers is not None:
                self.consumers.stop()

    app.steps["worker"].add(ConsumersStep)


log = get_logger(__name__)
Work = TypeVar("Work")

WAITING = 16
"""The maximum number of threads that wait for work."""
RETRY_SECONDS = 1.0


class ConsumerPool(Generic[Work]):
    """The threads of one kind of work."""

    def __init__(
        self, take: Callable[[], Work | None], do: Callable[[Work], None], *, limit: int, name: str
    ) -> None:
        """Create a pool. `take` blocks for at most a few seconds; `do` handles its own failures."""
        self._take = take
        self._do = do
        self._limit = limit
        self._name = name
        self._threads: set[threading.Thread] = set()
        self._waiting = 0
        self._lock = threading.Lock()
        self._is_stopping = threading.Event()

    def start(self) -> None:
        """Start to take work."""
        with self._lock:
            self._add()

    def stop(self) -> None:
        """Stop taking work, and wait until the work under way is done."""
        self._is_stopping.set()
        while threads := self._started():
            for thread in threads:
                thread.join()

    def _started(self) -> list[threading.Thread]:
        # Read under the lock: a thread in the set may not have been started before `_add` ends.
        with self._lock:
            return list(self._threads)

    def _add(self) -> None:
        # A daemon thread: `stop` waits for it, and a process that ends without `stop` must not wait.
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
        except Exception as error:  # noqa: BLE001 (this thread must continue after any failure)
            log.warning("work.not_taken", kind=self._name, error=str(error))
            self._is_stopping.wait(RETRY_SECONDS)
            return None

    def _begin(self) -> None:
        with self._lock:
            # This thread no longer waits for work. If no other thread waits, start one, up to the limit.
            self._waiting -= 1
            if not self._waiting and len(self._threads) < self._limit and not self._is_stopping.is_set():
                self._add()

    def _end(self) -> bool:
        """Return whether this thread should wait for work again: true if fewer than `WAITING` threads do."""
        with self._lock:
            is_needed = self._waiting < WAITING
            self._waiting += is_needed
        return is_needed
