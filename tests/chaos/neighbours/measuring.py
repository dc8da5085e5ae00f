"""How long the honest requests of a victim take, and which fail."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

VICTIMS = 2
"""Honest requests in progress at once."""
ALLOWED_FACTOR = 2.0
ALLOWED_SECONDS = 0.25


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Durations in seconds of the requests that succeeded, and what went wrong with the others."""

    seconds: Sequence[float]
    failures: Sequence[str]

    @property
    def p50(self) -> float:
        """The median."""
        return self._quantile(0.5)

    @property
    def p99(self) -> float:
        """The duration that one in a hundred exceeds: the longest, where there are fewer."""
        return self._quantile(0.99)

    def _quantile(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[math.ceil(part * len(ordered)) - 1] if ordered else math.inf


def measure(ask: Callable[[], None], seconds: float) -> Measured:
    """Ask again and again for so long, at least once each, as a few honest clients would."""
    durations: list[float] = []
    failures: list[str] = []
    over_at = time.monotonic() + seconds

    def work() -> None:
        while True:
            began = time.monotonic()
            try:
                ask()
            except Exception as error:  # noqa: BLE001 (any failure of an honest request is what is looked for)
                failures.append(f"{type(error).__name__}: {error}"[:300])
                time.sleep(0.05)
            else:
                durations.append(time.monotonic() - began)
            if time.monotonic() > over_at:
                return

    threads = [threading.Thread(target=work, daemon=True) for _ in range(VICTIMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds + 120)
        if thread.is_alive():
            failures.append("an honest request did not end within two minutes")
    return Measured(seconds=durations, failures=failures)


def find_failures(quiet: Measured, beside: Measured) -> list[str]:
    """Say which honest requests failed."""
    failures = [f"failed when alone: {failure}" for failure in quiet.failures[:3]]
    return failures + [f"{len(beside.failures)} failed, as: {failure}" for failure in beside.failures[:1]]


def find_delay(quiet: Measured, beside: Measured) -> list[str]:
    """Say whether honest requests took longer than they may beside a crowd."""
    allowed = allowed_seconds(quiet)
    if beside.p99 <= allowed:
        return []
    return [f"p99 {beside.p99 * 1000:.0f} ms, {allowed * 1000:.0f} ms are allowed"]


def allowed_seconds(quiet: Measured) -> float:
    """Give the p99 that is allowed beside a crowd."""
    return ALLOWED_FACTOR * quiet.p99 + ALLOWED_SECONDS
