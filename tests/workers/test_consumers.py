"""The consumer pool: enough threads for the work, a minimum that waits, and an orderly end."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tests.support.processes.stack import wait_until
from workers import consumers
from workers.consumers import ConsumerPool

NAME = "consumers-under-test"


class Work:
    """Work that waits in line, and what of it is being done."""

    def __init__(self) -> None:
        # Not a SimpleQueue: in CPython 3.11 its `get` waits for ever when another thread was faster at the deadline.
        self.waiting: queue.Queue[int] = queue.Queue()
        self.done: list[int] = []
        self.begun = 0
        self.may_end = threading.Event()

    def take(self) -> int | None:
        try:
            return self.waiting.get(timeout=0.02)
        except queue.Empty:
            return None

    def do(self, number: int) -> None:
        self.begun += 1
        self.may_end.wait(60)
        self.done.append(number)


@pytest.fixture
def work() -> Work:
    return Work()


@contextmanager
def taking(
    work: Work, *, limit: int, take: Callable[[], int | None] | None = None
) -> Iterator[ConsumerPool[int]]:
    threads: ConsumerPool[int] = ConsumerPool(take or work.take, work.do, limit=limit, name=NAME)
    threads.start()
    try:
        yield threads
    finally:
        work.may_end.set()
        threads.stop()


def test_all_work_is_done_at_once_up_to_the_limit(work: Work) -> None:
    with taking(work, limit=5):
        for number in range(8):
            work.waiting.put(number)
        wait_until(lambda: work.begun == 5, "as many as may are at work")
        assert work.waiting.qsize() == 3
        work.may_end.set()
        wait_until(lambda: len(work.done) == 8, "the rest follows")


def test_few_threads_stay_to_wait(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "WAITING", 2)
    with taking(work, limit=20):
        for number in range(10):
            work.waiting.put(number)
        wait_until(lambda: work.begun == 10, "all are at work")
        assert names_of_consumers() >= 10
        work.may_end.set()
        wait_until(lambda: names_of_consumers() <= 2, "most have gone")
        work.waiting.put(10)
        wait_until(lambda: len(work.done) == 11, "those that stayed go on")


def names_of_consumers() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


def test_stopping_pool_finishes_taken_work_and_takes_no_more(work: Work) -> None:
    with taking(work, limit=2) as threads:
        work.waiting.put(1)
        wait_until(lambda: work.begun == 1, "it is begun")
        stopping = threading.Thread(target=threads.stop)
        stopping.start()
        assert stopping.is_alive()
        work.may_end.set()
        stopping.join(60)
        work.waiting.put(2)
    assert work.done == [1]
    assert names_of_consumers() == 0


def test_a_source_that_fails_is_asked_again(work: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumers, "RETRY_SECONDS", 0.01)
    failures = iter([OSError("away"), OSError("still away")])

    def take() -> int | None:
        for error in failures:
            raise error
        return work.take()

    work.may_end.set()
    with taking(work, limit=1, take=take):
        work.waiting.put(1)
        wait_until(lambda: work.done == [1], "it is done at last")
