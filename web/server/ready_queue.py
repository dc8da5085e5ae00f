"""Requests that have arrived whole, until a thread may have them: one credential has a part of the threads at once.

Without it a burst of one client would fill all threads, only to be refused there for being more than its tenant's
share (`shared/fairness/admission.py`); here the rest of it waits and costs no thread. The credential is not verified
yet, which does no harm: who brings a stranger's waits behind it. What has waited for long is given a thread all the
same, a few at a time and while most are free, where it is answered why. Requests without a credential do not wait here.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Any

OVERDUE_EACH = 2
"""Threads for a credential's requests that have waited for too long. Most are refused at once: many threads that do
nothing else would take turns at the interpreter with those who answer the others."""


@dataclass(slots=True)
class _Sender:
    """The requests that bring one credential: how many have a thread, and which wait since when."""

    running: int = 0
    waiting: deque[tuple[float, Any]] = field(default_factory=deque)


class ReadyQueue:
    """Who is given a thread next."""

    def __init__(self, *, each: int, max_wait_seconds: float) -> None:
        """Limit the requests of each credential in threads, and how long one waits."""
        self._each = each
        self._patience_seconds = max_wait_seconds
        self._senders: dict[bytes, _Sender] = {}

    def may_begin(self, sender: bytes | None, request: Any, now: float) -> bool:
        """Count a request as running, or keep it waiting."""
        if sender is None:
            return True
        mine = self._senders.setdefault(sender, _Sender())
        if mine.running < self._each:
            mine.running += 1
            return True
        mine.waiting.append((now, request))
        return False

    def end(self, sender: bytes | None, now: float) -> Any:
        """Count a request as over; give the credential's next one, which runs in its place, or None."""
        if sender is None:
            return None
        mine = self._senders[sender]
        if mine.waiting and mine.running <= self._limit(mine, now):
            return mine.waiting.popleft()[1]
        mine.running -= 1
        if not mine.running:
            del self._senders[sender]
        return None

    def find_overdue(self, now: float, room: int) -> list[Any]:
        """Give those that have waited for too long, one of each credential, and as many as there is room for.

        They run from now on.
        """
        overdue: list[Any] = []
        for mine in self._senders.values():
            if len(overdue) >= room:
                break
            if self._is_overdue(mine, now):
                overdue.append(mine.waiting.popleft()[1])
                mine.running += 1
        return overdue

    def _limit(self, sender: _Sender, now: float) -> int:
        return min(self._each, OVERDUE_EACH) if self._is_overdue(sender, now) else self._each

    def _is_overdue(self, sender: _Sender, now: float) -> bool:
        """Tell whether the first that waits has waited for too long."""
        return bool(sender.waiting) and sender.waiting[0][0] + self._patience_seconds < now
