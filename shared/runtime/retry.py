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
    """Call an idempotent function until the server, or the room in the store, that it needs is back.

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
        # The first pause is short, because the cause is often only a stale connection.
        time.sleep(backoff_seconds(failures, first=FIRST_PAUSE_SECONDS, longest=LONGEST_PAUSE_SECONDS))


def is_transient(error: DomainError) -> bool:
    """Return whether the error may pass soon: a server of ours is unavailable, or storage is full or read-only."""
    return isinstance(error, ServiceUnavailable) or error.kind is Kind.STORAGE_FULL


def backoff_seconds(failures: int, *, first: float, longest: float) -> float:
    """Return the pause after this many failures: doubling from `first` up to `longest`."""
    # The exponent is capped, since 2.0 ** 1100 would overflow after enough failures.
    return min(longest, first * 2.0 ** min(failures - 1, 32))


def jittered(seconds: float) -> float:
    """Return the pause spread by ±50 %, so that clients that failed together do not retry together."""
    return seconds * random.uniform(0.5, 1.5)  # noqa: S311 (it spreads load, it keeps no secret)
