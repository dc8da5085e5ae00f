"""Processes that do one thing and may be killed on the way, each forked from a clean one in some milliseconds.

`die_at(point, act, settings, *arguments)` runs `act(settings, *arguments)` in a process of its own that is armed for
the fault point, and tells whether it died there by SIGKILL. What `act` and its arguments are must be importable and
picklable. Postgres hears of a death a moment later: until then the dead hold their rows, and whoever looks for work
passes these over, to come again. A test looks once, so it goes on when nothing is held any more.
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
    """Run `act` in a process armed for this point; tell whether it died there, and fail if it ended otherwise."""
    with TemporaryDirectory() as directory:
        deed = Path(directory) / "deed"
        deed.write_bytes(pickle.dumps((act, (settings, *arguments))))
        status, said = process_forks.run(__name__, point, str(deed))
    assert status in (0, -signal.SIGKILL), f"the process ended with {status}: {said}"
    _outlive_transactions(settings.database_url)
    return status == -signal.SIGKILL


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


def main() -> None:
    """Be such a process."""
    point, deed = sys.argv[1:]
    act, arguments = pickle.loads(Path(deed).read_bytes())
    failpoints.arm(point)
    act(*arguments)


if __name__ == "__main__":
    main()
