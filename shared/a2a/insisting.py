"""Try again what a server that is away for a moment prevented, for a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from shared.errors import Unavailable

Result = TypeVar("Result")
INSISTING_SECONDS = 20.0
"""How long a turn waits for the database or the store of content; nobody takes its lease while the database is away."""
LONGEST_PAUSE_SECONDS = 2.0


def insist(act: Callable[[], Result]) -> Result:
    """Do something that is safe to repeat, again and again while what it needs is away. Raises Unavailable."""
    gives_up_at = time.monotonic() + INSISTING_SECONDS
    pause = 0.05
    while True:
        try:
            return act()
        except Unavailable:
            if time.monotonic() > gives_up_at:
                raise
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_SECONDS, pause * 2)
