"""The shared record of all client observations: acknowledgements, reads, retries, and every broken promise."""

import threading
from collections import Counter
from collections.abc import Mapping

VIOLATIONS_SHOWN = 5
"""Of a kind."""


class Observations:
    """Collects counts and violations from all clients; safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.acknowledged: Counter[str] = Counter()
        self.reads: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.retries: Counter[str] = Counter()
        self.violations: list[str] = []

    def acknowledge(self, kind: str) -> None:
        """Count an operation that succeeded."""
        with self._lock:
            self.acknowledged[kind] += 1

    def count_read(self, outcome: str) -> None:
        """Count a read whose response was checked."""
        with self._lock:
            self.reads[outcome] += 1

    def count_call(self, outcome: str) -> None:
        """Count a call to a model."""
        with self._lock:
            self.calls[outcome] += 1

    def count_retry(self, reason: str) -> None:
        """Count a response without a definite result."""
        with self._lock:
            self.retries[reason] += 1

    def has_counted(self, wanted: Mapping[str, int], *, befallen: Counter[str]) -> bool:
        """Return whether the counts of operations, call results and strikes have reached `wanted`."""
        with self._lock:
            counted = self.acknowledged + befallen
            for outcome, count in self.calls.items():
                counted[outcome.rpartition(": ")[2]] += count
        return all(counted[kind] >= count for kind, count in wanted.items())

    def violate(self, what: str) -> None:
        """Record that the service broke a promise."""
        with self._lock:
            self.violations.append(what)
