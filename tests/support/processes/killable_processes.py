"""Run one function in a process that dies at a fault point; each is forked from a clean process in milliseconds.

`die_at(point, act, settings, *arguments)` runs `act(settings, *arguments)` in a process that is armed for the fault
point, and returns whether SIGKILL ended it there. `act` and its arguments must be importable and picklable. Postgres
notices a death a moment later. Until then the dead process's transactions hold their rows, and workers skip these
rows. A test scans only once, so `die_at` returns after all such transactions have ended.
"""

import pickle
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import text

from shared import failpoints
from shared.config.settings import Settings
from shared.db.database import Database
from tests.support.processes import process_forks
from tests.support.processes.stack import wait_until


def die_at(point: str, act: Callable[..., object], settings: Settings, *arguments: Any) -> bool:
    """Run `act` in a process armed for this point. Return whether it died there; fail if it ended otherwise."""
    with TemporaryDirectory() as directory:
        deed = Path(directory) / "deed"
        deed.write_bytes(pickle.dumps((act, (settings, *arguments))))
        status, said = process_forks.run(__name__, point, str(deed))
    assert status in (0, -signal.SIGKILL), f"the process ended with {status}: {said}"
    _outlive_transactions(settings.database_url)
    return status == -signal.SIGKILL


def _outlive_transactions(database_url: str) -> None:
    """Wait until every transaction that is open now has ended."""
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


def main() -> None:
    """Run as such a process."""
    point, deed = sys.argv[1:]
    act, arguments = pickle.loads(Path(deed).read_bytes())
    failpoints.arm(point)
    act(*arguments)


if __name__ == "__main__":
    main()
