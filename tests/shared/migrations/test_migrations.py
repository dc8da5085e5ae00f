"""The migrations make exactly the tables that the code declares, and the functions that stand in files."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pkgutil import walk_packages
from typing import Any
from uuid import uuid4

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, create_engine, event, text

import shared
from deploy.embedded.postgres import APPLICATION_ROLE, EmbeddedPostgres
from shared.db.advisory_locks import AdvisoryLock, take
from shared.db.schema import metadata
from shared.migrations.functions import function_files
from shared.migrations.grants import grant_access
from shared.migrations.runner import migrate
from tests.support.processes.collected_cases import found
from tests.support.processes.stack import wait_until

for _module in walk_packages(shared.__path__, "shared."):
    if _module.name.endswith("tables"):
        import_module(_module.name)

_SHAPES = {
    "columns": """
        SELECT table_name, column_name, data_type, is_nullable, column_default, character_maximum_length
        FROM information_schema.columns WHERE table_schema = 'public'
    """,
    "constraints": """
        SELECT conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
        WHERE connamespace = 'public'::regnamespace
    """,
    "indexes": "SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'",
}
_LONG_WAIT = text(
    """
SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND clock_timestamp() - waitstart > interval '600 ms'
"""
)
_DEFINITIONS = """
SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'public'::regnamespace ORDER BY proname
"""


@pytest.fixture
def declared(postgres_server: EmbeddedPostgres) -> Iterator[Engine]:
    postgres_server.create_database(name := f"test_{uuid4().hex}")
    url = postgres_server.migrations_url(name)
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg2://", 1))
    metadata.create_all(engine)
    yield engine
    engine.dispose()


def shape(engine: Engine, what: str) -> set[tuple[Any, ...]]:
    with engine.connect() as connection:
        rows = connection.execute(text(_SHAPES[what])).all()
    return {tuple(row) for row in rows if not str(row[0]).startswith("alembic_version")}


def revisions() -> list[str]:
    return [script.revision for script in ScriptDirectory("shared/migrations").walk_revisions()][::-1]


@pytest.mark.parametrize("what", _SHAPES)
def test_a_migrated_database_is_the_declared_one(empty_engine: Engine, declared: Engine, what: str) -> None:
    migrate(empty_engine)
    assert shape(empty_engine, what) == shape(declared, what)


def test_no_migration_is_missing(empty_engine: Engine) -> None:
    migrate(empty_engine)
    with empty_engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def definitions(engine: Engine) -> list[tuple[str, str]]:
    """The functions of a database by name; twice the same name is two functions."""
    with engine.connect() as connection:
        return [(name, definition) for name, definition in connection.execute(text(_DEFINITIONS))]


def test_every_function_stands_in_a_file_of_its_name(empty_engine: Engine) -> None:
    migrate(empty_engine)
    assert [name for name, _ in definitions(empty_engine)] == sorted(function_files())


def test_a_function_is_what_its_file_says(empty_engine: Engine) -> None:
    migrate(empty_engine)
    made = dict(definitions(empty_engine))
    for name, path in found(function_files().items()):
        with empty_engine.begin() as connection:
            connection.connection.cursor().execute(path.read_text())
        assert dict(definitions(empty_engine)) == made, name


def test_a_function_that_differs_is_put_right_by_migrating(empty_engine: Engine) -> None:
    migrate(empty_engine)
    made = definitions(empty_engine)
    with empty_engine.begin() as connection:
        connection.execute(
            text(
                "CREATE OR REPLACE FUNCTION credits_month() RETURNS date LANGUAGE sql AS 'SELECT NULL::date'"
            )
        )
    assert definitions(empty_engine) != made
    migrate(empty_engine)
    assert definitions(empty_engine) == made


def test_migrating_twice_changes_nothing(empty_engine: Engine) -> None:
    migrate(empty_engine)
    before = {what: shape(empty_engine, what) for what in _SHAPES}, definitions(empty_engine)
    migrate(empty_engine)
    assert ({what: shape(empty_engine, what) for what in _SHAPES}, definitions(empty_engine)) == before


@pytest.mark.parametrize("run", [migrate, partial(grant_access, role=APPLICATION_ROLE)])
def test_two_runs_wait_for_each_other_longer_than_their_connections_wait(
    administrator_url: str, run: Callable[[Engine], None]
) -> None:
    url = administrator_url.replace("postgresql://", "postgresql+psycopg2://", 1)
    engine = create_engine(url, connect_args={"options": "-c lock_timeout=10 -c statement_timeout=500"})
    with ThreadPoolExecutor(1) as threads, engine.begin() as first:
        take(first, AdvisoryLock.MIGRATIONS)
        second = threads.submit(run, engine)
        wait_until(lambda: second.done() or first.execute(_LONG_WAIT).all(), "the second has waited for long")
        assert not second.done()
    second.result()
    engine.dispose()


def test_migrations_are_one_line_of_numbers() -> None:
    assert revisions() == [f"{number:04d}" for number in range(1, len(revisions()) + 1)]


def test_a_migration_bounds_its_waits_for_locks(empty_engine: Engine) -> None:
    statements: list[str] = []
    event.listen(
        empty_engine, "before_cursor_execute", lambda _connection, _cursor, sql, *_: statements.append(sql)
    )
    migrate(empty_engine)
    first_change = next(index for index, sql in enumerate(statements) if "CREATE TABLE" in sql)
    before = " ".join(statements[:first_change])
    assert "SET LOCAL lock_timeout" in before
    assert "SET LOCAL statement_timeout" in before
