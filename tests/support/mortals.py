"""Processes that do one thing and may be killed on the way, each forked from a clean one in some milliseconds.

`die_at(point, act, settings, *arguments)` runs `act(settings, *arguments)` in a process of its own that is armed for
the fault point, and tells whether it died there by SIGKILL. What `act` and its arguments are must be importable and
picklable. Postgres hears of a death a moment later: until then the dead hold their rows, and whoever looks for work
passes these over, to come again. A test looks once, so it goes on when nothing is held any more.
"""

import multiprocessing
import signal
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import text

from shared import failpoints
from shared.database import Database
from shared.settings import Settings
from tests.support.stack import wait_until

PATIENCE_SECONDS = 60.0
# What the process that others are forked from imports first, so that each begins where it would be after a second.
_PRELOADED = (
    "web.app",
    "shared.media.fetching",
    "shared.files.blobs.local",
    "shared.files.blobs.multipart",
    "sqlalchemy.dialects.postgresql.psycopg2",
    "tests.support.stack",
)
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(list(_PRELOADED))


def die_at(point: str, act: Callable[..., object], settings: Settings, *arguments: Any) -> bool:
    """Run `act` in a process armed for this point; tell whether it died there, and fail if it ended otherwise."""
    process = _context.Process(target=_run, args=(point, act, (settings, *arguments)))
    process.start()
    process.join(PATIENCE_SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
        raise AssertionError(f"the process armed for {point} did not end")
    assert process.exitcode in (0, -signal.SIGKILL), f"the process ended with {process.exitcode}"
    _outlive_transactions(settings.database_url)
    return process.exitcode == -signal.SIGKILL


def _run(point: str, act: Callable[..., object], arguments: Sequence[Any]) -> None:
    failpoints.arm(point)
    act(*arguments)


def _outlive_transactions(database_url: str) -> None:
    """Wait until no transaction is open any more that is open now."""
    database = Database(database_url, pool_size=1)
    began = _open_transactions(database)
    wait_until(lambda: not began & _open_transactions(database), "the end of what the dead had begun")
    database.dispose()


def _open_transactions(database: Database) -> set[tuple[int, Any]]:
    with database.autocommit() as session:
        return {(row.pid, row.xact_start) for row in session.execute(_OPEN_TRANSACTIONS)}


_OPEN_TRANSACTIONS = text(
    """
SELECT pid, xact_start FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND xact_start IS NOT NULL
"""
)
