"""One transaction at a time has an advisory lock, and no other lock's holders wait for it."""

from pathlib import Path

import pytest

from shared.db.advisory_locks import AdvisoryLock, take
from shared.db.database import Database, LockTimeout


def test_a_lock_is_kept_until_its_transaction_ends(database: Database) -> None:
    with database.transaction() as first:
        take(first, AdvisoryLock.IMPORT_CLAIMS)
        with database.transaction() as second:
            take(second, AdvisoryLock.DELIVERY_CLAIMS)
        with pytest.raises(LockTimeout):
            take_impatiently(database, AdvisoryLock.IMPORT_CLAIMS)
    with database.transaction() as fourth:
        take(fourth, AdvisoryLock.IMPORT_CLAIMS)


def take_impatiently(database: Database, lock: AdvisoryLock) -> None:
    with database.transaction() as session:
        session.connection.exec_driver_sql("SET LOCAL lock_timeout = 1")
        take(session, lock)


def test_no_other_module_names_a_lock() -> None:
    root = Path(__file__).parents[3]
    naming = [
        path.relative_to(root).as_posix()
        for folder in ("web", "workers", "shared", "deploy")
        for path in (root / folder).rglob("*.py")
        if "pg_advisory" in path.read_text() or "pg_try_advisory" in path.read_text()
    ]
    assert naming == ["shared/db/advisory_locks.py"]
