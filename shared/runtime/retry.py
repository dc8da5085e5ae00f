"""Retry a function with exponential backoff while a server is unavailable. All retries of the project use this."""

import random
import time
from collections.abc import Callable
from typing import TypeVar

from shared.errors import DomainError, Kind, ServiceUnavailable

Result = TypeVar("Result")

RETRY_SECONDS = 20.0
"""How long work that no client waits for is retried: longer than a database restart takes."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0


def retry(act: Callable[[], Result], *, for_seconds: float = RETRY_SECONDS) -> Result:
    """Call an idempotent function until it succeeds, while a server is unavailable or the store is full.

    If this takes longer than `for_seconds`, raises the last error: ServiceUnavailable, or an error of kind
    `storage_full`.
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
        # Begin with a short pause, because the cause is often only a stale connection.
        time.sleep(backoff_seconds(failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS))


def is_transient(error: DomainError) -> bool:
    """Return whether a retry may succeed: a server is unavailable, or the storage is full or read-only."""
    return isinstance(error, ServiceUnavailable) or error.kind is Kind.STORAGE_FULL


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """Return the pause after this many failures, in seconds. It doubles from `first` up to `longest`."""
    # Limit the exponent: after many failures the power would overflow, as 2.0 ** 1100 does.
    return min(longest, first * 2.0 ** min(failures - 1, 32))


def jittered(seconds: float) -> float:
    """Return the pause with a random change of ±50 %, so that clients that failed together do not retry together."""
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 (it spreads load, it keeps no secret)
