"""Measure the latency of a victim's honest requests, and record their failures."""

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
class Measurement:
    """Latencies in seconds of the successful requests, and the errors of the others."""

    seconds: Sequence[float]
    failures: Sequence[str]

    @property
    def p50(self) -> float:
        """Return the median latency."""
        return self._quantile(0.5)

    @property
    def p99(self) -> float:
        """Return the 99th percentile, or the maximum if there are fewer than a hundred requests."""
        return self._quantile(0.99)

    def _quantile(self, part: float) -> float:
        ordered = sorted(self.seconds)
        return ordered[math.ceil(part * len(ordered)) - 1] if ordered else math.inf


def measure(ask: Callable[[], None], seconds: float) -> Measurement:
    """Send requests for a number of seconds, from a few concurrent clients; each sends at least one."""
    durations: list[float] = []
    failures: list[str] = []
    over_at = time.monotonic() + seconds

    def work() -> None:
        while True:
            began = time.monotonic()
            try:
                ask()
            except Exception as error:  # noqa: BLE001 (the trial looks for any failure of an honest request)
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
    return Measurement(seconds=durations, failures=failures)


def find_failures(quiet: Measurement, beside: Measurement) -> list[str]:
    """Return which honest requests failed."""
    failures = [f"failed when alone: {failure}" for failure in quiet.failures[:3]]
    return failures + [f"{len(beside.failures)} failed, as: {failure}" for failure in beside.failures[:1]]


def find_delay(quiet: Measurement, beside: Measurement) -> list[str]:
    """Return whether honest requests took longer than permitted beside a crowd."""
    allowed = allowed_seconds(quiet)
    if beside.p99 <= allowed:
        return []
    return [f"p99 {beside.p99 * 1000:.0f} ms, {allowed * 1000:.0f} ms are allowed"]


def allowed_seconds(quiet: Measurement) -> float:
    """Return the p99 that is permitted beside a crowd."""
    return ALLOWED_FACTOR * quiet.p99 + ALLOWED_SECONDS
