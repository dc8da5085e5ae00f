"""Complete requests that wait for a thread. One credential may use a limited number of threads at once.

Without the limit, a burst of one client would fill all threads, only to be refused there for exceeding its
tenant's share (`shared/fairness/admission.py`). In this queue the rest of the burst waits without a thread.
The credential is not verified yet. That is safe: a request with a stolen credential only waits behind
requests with the same credential. A request that has waited too long gets a thread, which refuses it with the
reason. Only a few overdue requests get one, and only while most threads are free. Requests without a
credential do not wait here.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

# Threads for a credential's overdue requests. Most overdue requests are refused at once. Many threads that
# only refuse would compete for the interpreter with threads that serve other requests.
OVERDUE_PER_CREDENTIAL = 2


@dataclass(slots=True)
class _Sender:
    """The requests of one credential: how many are running, which are waiting, and since when."""

    running: int = 0
    waiting: deque[tuple[float, Any]] = field(default_factory=deque)


class ReadyQueue:
    """Decides which request gets a thread next. Only the accepting thread uses it."""

    def __init__(self, *, max_per_credential: int, max_wait_seconds: float) -> None:
        """Limit the running requests of each credential.

        A request that waits longer than `max_wait_seconds` is overdue.
        """
        self._max_per_credential = max_per_credential
        self._max_wait_seconds = max_wait_seconds
        self._senders: dict[bytes, _Sender] = {}

    def start_or_queue(self, sender: bytes | None, request: Any, now: float) -> bool:
        """Count a request as running and return True.

        If its credential is at the limit, queue the request and return False.
        """
        if sender is None:
            return True
        # The key is the header's bytes. Two spellings of one credential get two queues, which does no harm.
        queue = self._senders.setdefault(sender, _Sender())
        if queue.running < self._max_per_credential:
            queue.running += 1
            return True
        queue.waiting.append((now, request))
        return False

    def end(self, sender: bytes | None, now: float) -> Any:
        """Count a request as finished. Return the credential's next request, now running, or None."""
        if sender is None:
            return None
        queue = self._senders[sender]
        # The next request takes the place of the finished one, so `running` does not change.
        if queue.waiting and queue.running <= self._limit(queue, now):
            return queue.waiting.popleft()[1]
        queue.running -= 1
        if not queue.running:
            # Remove the entry: otherwise the dictionary would grow with every credential ever sent.
            del self._senders[sender]
        return None

    def find_overdue(self, now: float, room: int) -> list[Any]:
        """Return up to `room` overdue requests, at most one of each credential. Count them as running."""
        overdue: list[Any] = []
        for queue in self._senders.values():
            if len(overdue) >= room:
                break
            if self._is_overdue(queue, now):
                overdue.append(queue.waiting.popleft()[1])
                queue.running += 1
        return overdue

    def _limit(self, sender: _Sender, now: float) -> int:
        return (
            min(self._max_per_credential, OVERDUE_PER_CREDENTIAL)
            if self._is_overdue(sender, now)
            else self._max_per_credential
        )

    def _is_overdue(self, sender: _Sender, now: float) -> bool:
        """Return whether the sender's first waiting request has waited too long."""
        return bool(sender.waiting) and sender.waiting[0][0] + self._max_wait_seconds < now
