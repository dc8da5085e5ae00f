"""Through PgBouncer in transaction mode: the role's time limits, none ready statements, and the whole of the work."""

import os
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from click.testing import CliRunner
from cryptography.fernet import Fernet
from sqlalchemy import text

from deploy.cli.main import main
from deploy.embedded.postgres import EmbeddedPostgres
from deploy.embedded.valkey import EmbeddedValkey
from shared.db.database import LIMITS, Database
from shared.db.role_limits import find_missing_limits, refuse_missing_limits, set_limits
from shared.db.statements import Prepared
from shared.errors import ServiceUnavailable
from shared.files.blobs.local import LocalBlobStore
from tests.contracts.blob_stores import LocalBench
from tests.shared.files.conftest import Shelf, caller_with_everything
from tests.support.data.identity import make_settings
from tests.support.servers.pgbouncer import COMMAND, MISSING, SERVER_CONNECTIONS, running_pooler
from tests.support.servers.prepared_postgres import make_template, start_prepared

pytestmark = pytest.mark.skipif(COMMAND is None, reason=MISSING)


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """A migrated database, and its address through the pooler."""

    postgres: EmbeddedPostgres
    name: str
    url: str

    def open(self) -> Database:
        return Database(self.url.replace("postgresql://", "postgresql+psycopg2://"), has_pooler=True)

    def forget_limits(self) -> None:
        direct = Database(self.postgres.url.replace("postgresql://", "postgresql+psycopg2://"))
        with direct.autocommit() as session:
            session.execute(text(f"ALTER ROLE quartermaster_app IN DATABASE {self.name} RESET ALL"))
            session.execute(
                text("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = :name"),
                {"name": self.name},
            )
        direct.dispose()


@pytest.fixture(scope="module")
def pooled() -> Iterator[Pooled]:
    """Start a Postgres of its own: the pooler's account must be able to read every directory on its path."""
    with tempfile.TemporaryDirectory(prefix="pooled-") as made:
        directory = Path(made)
        directory.chmod(0o755)
        postgres = EmbeddedPostgres(directory / "postgres", durable=False)
        start_prepared(postgres)
        try:
            name = make_template(postgres)
            with running_pooler(postgres, name) as url:
                yield Pooled(postgres=postgres, name=name, url=url)
        finally:
            postgres.stop()


@pytest.fixture
def database(pooled: Pooled) -> Iterator[Database]:
    """The database through the pooler, with its limits."""
    database = pooled.open()
    set_limits(database)
    yield database
    database.dispose()


def test_the_pooler_refuses_limits_that_a_connection_brings(pooled: Pooled) -> None:
    plain = Database(pooled.url.replace("postgresql://", "postgresql+psycopg2://"))
    with pytest.raises(ServiceUnavailable):
        plain.check()
    plain.dispose()


def test_no_process_starts_until_connections_have_their_limits(
    pooled: Pooled, valkey_server: EmbeddedValkey, tmp_path: Path
) -> None:
    pooled.forget_limits()
    database = pooled.open()
    settings = make_settings(database_url=pooled.url, database_pooler=True)
    assert set(find_missing_limits(database)) >= {"statement_timeout", "lock_timeout"}
    with pytest.raises(SystemExit) as ended:
        refuse_missing_limits(settings, database)
    assert ended.value.code == os.EX_CONFIG
    environment = {
        "DATABASE_URL": pooled.url,
        "DATABASE_POOLER": "true",
        "MIGRATIONS_DATABASE_URL": pooled.postgres.migrations_url(pooled.name),
        "REDIS_URL": valkey_server.url,
        "BLOB_STORE": tmp_path.as_uri(),
        "ENCRYPTION_KEYS": Fernet.generate_key().decode(),
    }
    migrated = CliRunner().invoke(main, ["migrate"], env=environment, catch_exceptions=False)
    assert migrated.exit_code == 0, migrated.output
    assert find_missing_limits(database) == []
    refuse_missing_limits(settings, database)
    database.dispose()


def test_every_connection_behind_the_pooler_has_the_limits(database: Database) -> None:
    together = threading.Barrier(SERVER_CONNECTIONS)

    def look() -> tuple[int, str]:
        with database.transaction() as session:
            server = session.execute(text("SELECT pg_backend_pid()")).scalar_one()
            together.wait(60)
            found = session.execute(text("SELECT current_setting('statement_timeout')")).scalar_one()
        return server, found

    with ThreadPoolExecutor(SERVER_CONNECTIONS) as pool:
        seen = list(pool.map(lambda _: look(), range(SERVER_CONNECTIONS)))
    assert len({server for server, _ in seen}) == SERVER_CONNECTIONS
    assert {limit for _, limit in seen} == {LIMITS["statement_timeout"].replace("000ms", "s")}


def test_a_statement_is_carried_out_on_whatever_connection_it_meets(database: Database) -> None:
    doubled = Prepared("SELECT 2 * CAST(%(number)s AS integer) AS twice, '100 %%' AS said")

    def ask(number: int) -> tuple[int, str]:
        if number % 2:
            with database.autocommit() as session:
                found = session.fetch_one(doubled, {"number": number})
        else:
            with database.transaction() as session:
                found = session.fetch_one(doubled, {"number": number})
        assert found is not None
        return found.twice, found.said

    with ThreadPoolExecutor(12) as pool:
        assert list(pool.map(ask, range(200))) == [(2 * number, "100 %") for number in range(200)]


def test_files_are_written_replaced_and_collected_through_the_pooler(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf(
        database=database,
        bench=LocalBench(tmp_path / "blobs"),
        caller=caller_with_everything(database),
        patch=monkeypatch,
    )
    assert isinstance(shelf.store, LocalBlobStore)

    def work(number: int) -> None:
        operation = uuid4()
        file = shelf.upload(b"content %d" % number, operation_id=operation)
        assert shelf.upload(b"content %d" % number, operation_id=operation).replayed
        if number % 2:
            shelf.replace(file)
        else:
            shelf.delete(file)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    shelf.work()
    assert len(shelf.sql("SELECT 1 FROM blobs WHERE state = 'live'")) == 24
