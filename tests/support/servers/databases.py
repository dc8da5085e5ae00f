"""Databases for tests: one migrated template for the run, a fresh clone for each module.

A clone starts empty. The tests of one module share it and make the rows they need, so they never count whole tables.
They, and what they test, work as the service's own role; `administrator_url` is for tests that make tables.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text

from deploy.embedded.postgres import APPLICATION_ROLE, MIGRATIONS_ROLE, SUPERUSER, EmbeddedPostgres
from shared.db.database import Database
from tests.support.servers.memory_directories import is_in_memory
from tests.support.servers.prepared_postgres import driver_url, make_template

# Beyond what the service's role has anywhere else: to bring statistics up to date, and to plant broken rows.
_RIGHTS_OF_TESTS = ("pg_maintain", "SET ON PARAMETER session_replication_role")


@pytest.fixture(scope="session")
def migrated_template(postgres_server: EmbeddedPostgres) -> str:
    """Make a database with the newest schema, to clone; gives its name."""
    name = make_template(postgres_server)
    administrator = create_engine(driver_url(postgres_server.url))
    with administrator.begin() as connection:
        for right in _RIGHTS_OF_TESTS:
            connection.execute(text(f"GRANT {right} TO {APPLICATION_ROLE}"))
    administrator.dispose()
    return name


@pytest.fixture(scope="module")
def database_url(postgres_server: EmbeddedPostgres, migrated_template: str) -> Iterator[str]:
    """Clone the template for this module; gives the address as `DATABASE_URL` would."""
    yield (url := clone(postgres_server, migrated_template))
    if is_in_memory(postgres_server.directory):
        postgres_server.drop_database(_name_in(url))


def clone(server: EmbeddedPostgres, template: str) -> str:
    """Copy a database file by file, which costs half of what it does by log where nothing waits for the disk."""
    name = f"test_{uuid4().hex}"
    administrator = create_engine(driver_url(server.url), isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        strategy = f"TEMPLATE {template} OWNER {MIGRATIONS_ROLE} STRATEGY FILE_COPY"
        connection.execute(text(f"CREATE DATABASE {name} {strategy}"))
    administrator.dispose()
    return server.database_url(name)


@pytest.fixture
def empty_engine(postgres_server: EmbeddedPostgres) -> Iterator[Engine]:
    """Open a database without a schema, as who migrates it."""
    postgres_server.create_database(name := f"test_{uuid4().hex}")
    engine = create_engine(driver_url(postgres_server.migrations_url(name)))
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def administrator_url(postgres_server: EmbeddedPostgres, database_url: str) -> str:
    """Give the address of this module's database for its superuser."""
    return postgres_server.database_url(_name_in(database_url), role=SUPERUSER)


@pytest.fixture(scope="module")
def database(database_url: str) -> Iterator[Database]:
    """Open this module's database."""
    database = Database(driver_url(database_url))
    yield database
    database.dispose()


def _name_in(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]
