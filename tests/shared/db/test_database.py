"""The pool over a Postgres that goes away and comes back."""

import threading
import traceback
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from sqlalchemy import event, text
from sqlalchemy.exc import DBAPIError

from deploy.embedded.postgres import EmbeddedPostgres
from shared.db import database as pools
from shared.db.database import Database
from shared.db.statements import is_closed_by_server
from shared.errors import ServiceUnavailable
from tests.support.processes.stack import wait_until
from tests.support.servers.links import Link


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


def test_lost_connection_raises_unavailable_and_blocks_no_other_caller(
    database_url: str,
) -> None:
    narrow = Database(database_url.replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=1)
    for use in (narrow.autocommit, narrow.transaction):
        for _ in range(3):
            with pytest.raises(ServiceUnavailable), use() as session:
                session.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))
    narrow.check()
    narrow.dispose()


def test_connections_that_end_at_once_raise_unavailable(database_url: str, database: Database) -> None:
    doomed = Database(database_url.replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=2)

    @event.listens_for(doomed.engine, "connect")
    def _end(connection: Any, *_: Any) -> None:
        with database.autocommit() as session:
            session.fetch_one("SELECT pg_terminate_backend(%(pid)s)", {"pid": connection.info.backend_pid})
        wait_until(lambda: is_closed_by_server(connection), "the end of the connection")

    for begin in (doomed.autocommit, doomed.transaction):
        with pytest.raises(ServiceUnavailable), begin() as session:
            session.fetch_one("SELECT 1", {})
    doomed.dispose()


def test_a_statement_that_fails_does_not_say_what_it_was_given(database: Database) -> None:
    secret = uuid4().hex
    with pytest.raises(DBAPIError) as failure, database.transaction() as session:
        session.execute(text("SELECT 1 / CAST(:zero AS integer), :secret"), {"zero": 0, "secret": secret})
    assert secret not in "".join(traceback.format_exception(failure.value))


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_link_that_was_cut_without_a_word_is_noticed(
    database_url: str, monkeypatch: pytest.MonkeyPatch, is_idle: bool
) -> None:
    quickly = {
        "keepalives_idle": 1,
        "keepalives_interval": 1,
        "keepalives_count": 1,
        "tcp_user_timeout": 1500,
    }
    assert pools.SILENT_LINK.keys() == quickly.keys()
    monkeypatch.setattr(pools, "SILENT_LINK", quickly)
    address = urlsplit(database_url)
    with Link(f"{parse_qs(address.query)['host'][0]}/.s.PGSQL.5432") as link:
        away = Database(
            f"postgresql+psycopg2://{address.username}@127.0.0.1:{link.port}{address.path}", pool_size=1
        )
        away.check()
        told: list[BaseException] = []

        def wait() -> None:
            with pytest.raises(ServiceUnavailable) as failure, away.autocommit() as session:
                session.connection.exec_driver_sql(
                    "SELECT pg_sleep(0)" if is_idle else "SELECT pg_sleep(3600)"
                )
            told.append(failure.value)

        waiting = threading.Thread(target=wait, daemon=True)
        if is_idle:
            link.cut()
            waiting.start()
        else:
            waiting.start()
            _wait_for_the_statement(database_url)
            link.cut()
        waiting.join(25)  # before the statement's own limit, which a cut link keeps from being told
        assert told


def _wait_for_the_statement(database_url: str) -> None:
    near = Database(database_url.replace("postgresql://", "postgresql+psycopg2://", 1), pool_size=1)
    sleeping = text(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query = 'SELECT pg_sleep(3600)'"
    )
    with near.autocommit() as session:
        wait_until(lambda: session.execute(sleeping).scalar() == 1, "the statement to begin")
    near.dispose()
