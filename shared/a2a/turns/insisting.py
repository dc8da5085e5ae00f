"""Try again what a server that is away for a moment prevented, for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from shared.errors import DomainError, Kind, Unavailable

Result = TypeVar("Result")
INSISTING_SECONDS = 20.0
"""How long a turn waits for the database or the store of content; nobody takes its lease while the database is away."""
LONGEST_PAUSE_SECONDS = 2.0


def insist(act: Callable[[], Result]) -> Result:
    """Do something that is safe to repeat, again and again while what it needs is away, or is full or read-only.

    Raises Unavailable, or the error of kind `storage_full`, if that lasts.
    """
    gives_up_at = time.monotonic() + INSISTING_SECONDS
    pause = 0.05
    while True:
        try:
            return act()
        except DomainError as error:
            if not _may_pass(error) or time.monotonic() > gives_up_at:
                raise
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)


def _may_pass(error: DomainError) -> bool:
    return isinstance(error, Unavailable) or error.kind is Kind.STORAGE_FULL
