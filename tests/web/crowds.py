"""Many simultaneous requests to the web process of the test, some of which wait until a gate is opened.

For tests of fairness: start a `Crowd` of hostile requests, wait until they hold all slots that they can get, send
requests as the victim meanwhile, and check how the crowd's requests ended.
"""

import io
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from werkzeug.test import TestResponse

from shared.fairness.admission import Pool

PATIENCE_SECONDS = 90.0
Request = Callable[[], TestResponse]


class HeldBody(io.RawIOBase):
    """A request body that stalls half-way until the gate is opened."""

    def __init__(self, content: bytes, gate: threading.Event) -> None:
        super().__init__()
        self._content = io.BytesIO(content)
        self._gate = gate

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._content.tell():
            assert self._gate.wait(PATIENCE_SECONDS)
        return self._content.readinto(buffer[:1] if not self._content.tell() else buffer)


class Crowd:
    """Requests in progress, each in its own thread."""

    def __init__(self, requests: list[Request], threads: ThreadPoolExecutor) -> None:
        self.answers: list[Future[TestResponse]] = [threads.submit(request) for request in requests]

    def statuses(self) -> Counter[int]:
        """Return the number of requests for each status, once all have ended."""
        return Counter(answer.result(PATIENCE_SECONDS).status_code for answer in self.answers)

    def refusals(self) -> list[TestResponse]:
        """Return the responses that refuse a slot."""
        ended = [answer.result(PATIENCE_SECONDS) for answer in self.answers]
        return [answer for answer in ended if answer.status_code in (429, 503)]

    def wait_until_settled(self, pool: Pool) -> None:
        """Wait until each request holds a slot of the pool or was refused one."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while pool.waiting or pool.in_use + sum(answer.done() for answer in self.answers) < len(self.answers):
            assert time.monotonic() < deadline, f"{pool.in_use} in use, {pool.waiting} waiting"
            time.sleep(0.01)


@contextmanager
def crowd(requests: list[Request], gate: threading.Event) -> Iterator[Crowd]:
    """Start these requests. At the end of the block, open the gate and wait for all of them."""
    with ThreadPoolExecutor(max(1, len(requests))) as threads:
        try:
            yield Crowd(requests, threads)
        finally:
            gate.set()
