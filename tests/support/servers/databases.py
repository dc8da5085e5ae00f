"""Databases for tests: one migrated template for the run, and a new clone for each module.

A clone starts empty. The tests of one module share it and create the rows they need, so they never count whole tables.
Tests and code under test connect as the service's own role; `administrator_url` is for tests that create tables.
"""

from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine, text

from deploy.embedded.postgres import APPLICATION_ROLE, MIGRATIONS_ROLE, SUPERUSER, EmbeddedPostgres
from shared.db.database import Database
from tests.support.servers.memory_directories import is_in_memory
from tests.support.servers.prepared_postgres import driver_url, make_template

# Rights beyond those of the service's role: to run ANALYZE, and to insert invalid rows.
_RIGHTS_OF_TESTS = ("pg_maintain", "SET ON PARAMETER session_replication_role")


@pytest.fixture(scope="session")
def migrated_template(postgres_server: EmbeddedPostgres) -> str:
    """Create a database with the newest schema, to clone; return its name."""
    name = make_template(postgres_server)
    administrator = create_engine(driver_url(postgres_server.url))
    with administrator.begin() as connection:
        for right in _RIGHTS_OF_TESTS:
            connection.execute(text(f"GRANT {right} TO {APPLICATION_ROLE}"))
    administrator.dispose()
    return name


@pytest.fixture(scope="module")
def database_url(postgres_server: EmbeddedPostgres, migrated_template: str) -> Iterator[str]:
    """Clone the template for this module; yield its URL in the form of `DATABASE_URL`."""
    yield (url := clone(postgres_server, migrated_template))
    if is_in_memory(postgres_server.directory):
        postgres_server.drop_database(_name_in(url))


def clone(server: EmbeddedPostgres, template: str) -> str:
    """Copy a database by file copy: without fsync it takes half the time of a copy by WAL."""
    name = f"test_{uuid4().hex}"
    administrator = create_engine(driver_url(server.url), isolation_level="AUTOCOMMIT")
    with administrator.connect() as connection:
        strategy = f"TEMPLATE {template} OWNER {MIGRATIONS_ROLE} STRATEGY FILE_COPY"
        connection.execute(text(f"CREATE DATABASE {name} {strategy}"))
    administrator.dispose()
    return server.database_url(name)


@pytest.fixture
def empty_engine(postgres_server: EmbeddedPostgres) -> Iterator[Engine]:
    """Open a database without a schema, as the migrating role."""
    postgres_server.create_database(name := f"test_{uuid4().hex}")
    engine = create_engine(driver_url(postgres_server.migrations_url(name)))
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def administrator_url(postgres_server: EmbeddedPostgres, database_url: str) -> str:
    """Return the superuser's URL of this module's database."""
    return postgres_server.database_url(_name_in(database_url), role=SUPERUSER)


@pytest.fixture(scope="module")
def database(database_url: str) -> Iterator[Database]:
    """Open this module's database."""
    database = Database(driver_url(database_url))
    yield database
    database.dispose()


def _name_in(url: str) -> str:
    return url.partition("?")[0].rpartition("/")[2]
