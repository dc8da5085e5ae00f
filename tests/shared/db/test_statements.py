"""Single statements over connections of their own: committed at once, shared by threads, alive after a restart."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psycopg2
import pytest

from deploy.embedded.postgres import EmbeddedPostgres
from shared.db import database as module
from shared.db.database import Database, LockTimeout
from shared.db.statements import Prepared
from shared.errors import ServiceUnavailable
from tests.support.processes.stack import wait_until

PID = "SELECT pg_backend_pid() AS pid"


@pytest.fixture
def narrow(administrator_url: str) -> Iterator[Database]:
    """Two connections for statements, as one who may make a table."""
    database = Database(administrator_url.replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=4)
    with database.autocommit() as session:
        session.fetch_one("CREATE TABLE IF NOT EXISTS words (word text) ; SELECT 1", {})
    yield database
    database.dispose()


def count(database: Database, word: str) -> int:
    with database.transaction() as session:
        row = session.fetch_one("SELECT count(*) FROM words WHERE word = %(word)s", {"word": word})
    assert row is not None
    return int(row[0])


def test_a_statement_is_a_transaction_by_itself_and_its_row_has_names(narrow: Database) -> None:
    statement = "INSERT INTO words VALUES (%(word)s) RETURNING word, upper(word) AS loud"
    with narrow.autocommit() as session:
        row = session.fetch_one(statement, {"word": "kept"})
        assert row is not None
        assert (row.word, row.loud) == ("kept", "KEPT")
        assert session.fetch_one("SELECT 1 WHERE false", {}) is None
        assert count(narrow, "kept") == 1


def test_in_a_transaction_it_is_part_of_it(narrow: Database) -> None:
    with suppress(ZeroDivisionError), narrow.transaction() as session:
        session.fetch_one("INSERT INTO words VALUES ('undone') RETURNING 1", {})
        raise ZeroDivisionError
    assert count(narrow, "undone") == 0


def test_more_threads_than_connections_wait_for_their_turn(narrow: Database) -> None:
    start = threading.Barrier(8)

    def ask(_: int) -> int:
        start.wait(60)
        with narrow.autocommit() as session:
            row = session.fetch_one(f"{PID}, pg_sleep(0.01)", {})
        assert row is not None
        return int(row.pid)

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(ask, range(8)))) <= 2


def test_whoever_waits_too_long_is_told_that_the_database_is_busy(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOL_WAIT_SECONDS", 0.05)
    database = Database(database_url.replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=1)

    def sleep() -> None:
        with database.autocommit() as session:
            session.fetch_one("SELECT pg_sleep(0.5)", {})

    with ThreadPoolExecutor(2) as pool:
        outcomes = [future.exception() for future in [pool.submit(sleep), pool.submit(sleep)]]
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "ServiceUnavailable"]
    database.dispose()


def test_a_statement_that_fails_leaves_its_connection_in_use(narrow: Database) -> None:
    pids = set()
    for _ in range(2):
        with pytest.raises(psycopg2.errors.DivisionByZero), narrow.autocommit() as session:
            session.fetch_one("SELECT 1 / 0", {})
        with narrow.autocommit() as session:
            row = session.fetch_one(PID, {})
        assert row is not None
        pids.add(row.pid)
    assert len(pids) == 1


def test_a_lock_that_is_not_had_in_time_is_told_as_such(narrow: Database) -> None:
    with narrow.transaction() as holder:
        holder.fetch_one("LOCK TABLE words; SELECT 1", {})
        with pytest.raises(LockTimeout), narrow.autocommit() as session:
            session.fetch_one("SET lock_timeout = 10; SELECT count(*) FROM words", {})


def test_connections_that_postgres_has_closed_are_replaced(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path / "postgres", durable=False)
    postgres.start()
    try:
        url = postgres.create_database("stated").replace("postgresql://", "postgresql+psycopg2://", 1)
        database = Database(url)
        with database.autocommit() as session:
            session.fetch_one(PID, {})
        postgres.stop()
        postgres.start()
        with database.autocommit() as session:
            assert session.fetch_one(PID, {})
        # Stopped, not killed: the processes of a killed one answer for a moment longer.
        postgres.stop()
        with pytest.raises(ServiceUnavailable), database.autocommit() as session:
            session.fetch_one(PID, {})
        database.dispose()
    finally:
        postgres.stop()


def test_each_connection_prepares_a_statement_once(narrow: Database) -> None:
    statement = Prepared("SELECT %(word)s || '%%' AS text, %(number)s + 1 AS number WHERE %(word)s <> 'none'")
    with narrow.transaction() as session:
        for number in (1, 2):
            row = session.fetch_one(statement, {"word": "it's", "number": number, "more": None})
            assert row is not None
            assert (row.text, row.number) == ("it's%", number + 1)
        assert session.fetch_one(statement, {"word": "none", "number": 1}) is None
        prepared = session.fetch_one("SELECT count(*) AS count FROM pg_prepared_statements", {})
        assert prepared is not None
        assert prepared.count == 1


def test_a_statement_stays_prepared_when_its_transaction_is_undone(narrow: Database) -> None:
    statement = Prepared("INSERT INTO words VALUES (%(word)s) RETURNING word")
    with suppress(ZeroDivisionError), narrow.transaction() as session:
        session.fetch_one(statement, {"word": "undone"})
        raise ZeroDivisionError
    with narrow.transaction() as session:
        session.fetch_one(statement, {"word": "prepared"})
    assert (count(narrow, "undone"), count(narrow, "prepared")) == (0, 1)


def test_a_new_connection_prepares_what_the_last_one_had(narrow: Database) -> None:
    statement = Prepared(PID)
    with narrow.autocommit() as session:
        first = session.fetch_one(statement, {})
        assert first is not None
        with narrow.transaction() as other:
            other.fetch_one("SELECT pg_terminate_backend(%(pid)s)", {"pid": first.pid})
        wait_until(lambda: is_gone(narrow, first.pid), "the connection is closed")
        second = session.fetch_one(statement, {})
        assert second is not None
        assert second.pid != first.pid


def is_gone(database: Database, pid: int) -> bool:
    with database.transaction() as session:
        return session.fetch_one("SELECT 1 FROM pg_stat_activity WHERE pid = %(pid)s", {"pid": pid}) is None
