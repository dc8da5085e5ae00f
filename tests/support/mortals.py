"""Processes that do one thing and may be killed on the way, each forked from a clean one in some milliseconds.

`die_at(point, act, *arguments)` runs `act` in a process of its own that is armed for the fault point, and tells
whether it died there by SIGKILL. What `act` and its arguments are must be importable and picklable.
"""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from typing import Any

from shared import failpoints

PATIENCE_SECONDS = 60.0
# What the process that others are forked from imports first, so that each begins where it would be after a second.
_PRELOADED = (
    "web.app",
    "shared.media.fetching",
    "shared.files.blobs.local",
    "shared.files.blobs.multipart",
    "sqlalchemy.dialects.postgresql.psycopg2",
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(_PRELOADED))


def die_at(point: str, act: Callable[..., object], *arguments: Any) -> bool:
    """Run `act` in a process armed for this point; tell whether it died there, and fail if it ended otherwise."""
    process = _context.Process(target=_run, args=(point, act, arguments))
    process.start()
    process.join(PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"the process armed for {point} did not end")
    assert process.exitcode in (0, -signal.SIGKILL), f"the process ended with {process.exitcode}"
    return process.exitcode == -signal.SIGKILL


def _run(point: str, act: Callable[..., object], arguments: Sequence[Any]) -> None:
    failpoints.arm(point)
    act(*arguments)
