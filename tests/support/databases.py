"""Databases for tests: one migrated template for the run, a fresh clone for each module.

A clone starts empty. The tests of one module share it and make the rows they need, so they never count whole tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest
from sqlalchemy import create_engine

from deploy.embedded.postgres import EmbeddedPostgres
from shared.database import Database
from shared.migrations.runner import migrate

_TEMPLATE = "migrated"


@pytest.fixture(scope="session")
def migrated_template(postgres_server: EmbeddedPostgres) -> str:
    """Make a database with the newest schema, to clone; gives its name."""
    engine = create_engine(_driver_url(postgres_server.create_database(_TEMPLATE)))
    migrate(engine)
    engine.dispose()
    return _TEMPLATE


@pytest.fixture(scope="module")
def database_url(postgres_server: EmbeddedPostgres, migrated_template: str) -> str:
    """Clone the template for this module; gives the address as `DATABASE_URL` would."""
    return postgres_server.create_database(f"test_{uuid4().hex}", template=migrated_template)


@pytest.fixture(scope="module")
def database(database_url: str) -> Iterator[Database]:
    """Open this module's database."""
    database = Database(_driver_url(database_url))
    yield database
    database.dispose()


def _driver_url(url: str) -> str:
    return url.replace("postgresql://", "postgresql+psycopg2://", 1)
