"""Retry what a server that is away for a moment prevented, with exponential backoff; the one place that does."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from shared.errors import DomainError, Kind, ServiceUnavailable

Result = TypeVar("Result")

RETRY_SECONDS = 20.0
"""How long work that waits for nobody is retried: longer than a database takes to restart."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


def retry(act: Callable[[], Result], *, for_seconds: float = RETRY_SECONDS) -> Result:
    """Retry something idempotent until a server it needs, or room in the store, is back.

    Raises the last error, ServiceUnavailable or one of kind `storage_full`, if that takes longer than `for_seconds`.
    """
    gives_up_at = time.monotonic() + for_seconds
    failures = 0
    while True:
        try:
            return act()
        except DomainError as error:
            if not is_transient(error) or time.monotonic() > gives_up_at:
                raise
        failures += 1
        # The first failure may only have been a connection that had gone stale.
        time.sleep(backoff_seconds(failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS))


def is_transient(error: DomainError) -> bool:
    """Whether what failed may work in a moment: something of ours is away, or full or read-only."""
    return isinstance(error, ServiceUnavailable) or error.kind is Kind.STORAGE_FULL


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """Give the pause after so many failures: doubling from the first to the longest."""
    return min(longest, first * 2.0 ** min(failures - 1, 32))


def jittered(seconds: float) -> float:
    """Spread a pause by half, either way, so that what failed together does not come back together."""
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 (it spreads load, it keeps no secret)
