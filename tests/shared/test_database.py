"""The pool over a Postgres that goes away and comes back."""

import traceback
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from deploy.embedded.postgres import EmbeddedPostgres
from shared.database import Database
from shared.errors import Unavailable


def test_the_first_use_after_a_restart_of_postgres_meets_no_dead_connection(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path / "postgres", durable=False)
    postgres.start()
    try:
        url = postgres.create_database("pooled").replace("postgresql://", "postgresql+psycopg2://", 1)
        database = Database(url)
        with ExitStack() as uses:
            for _ in range(4):
                uses.enter_context(database.autocommit())
        postgres.kill()
        postgres.start()
        for _ in range(4):
            database.check()
        with database.transaction() as session:
            assert session.connection.exec_driver_sql("SELECT 1").scalar() == 1
        database.dispose()
    finally:
        postgres.stop()


def test_whoever_loses_its_connection_is_told_to_try_again_and_holds_up_nobody(
    database_url: str,
) -> None:
    narrow = Database(database_url.replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=1)
    for use in (narrow.autocommit, narrow.transaction):
        for _ in range(3):
            with pytest.raises(Unavailable), use() as session:
                session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    narrow.check()
    narrow.dispose()


def test_a_statement_that_fails_does_not_say_what_it_was_given(database: Database) -> None:
    secret = uuid4().hex
    with pytest.raises(DBAPIError) as failure, database.transaction() as session:
        session.execute(text("SELECT 1 / CAST(:zero AS integer), :secret"), {"zero": 0, "secret": secret})
    assert secret not in "".join(traceback.format_exception(failure.value))
