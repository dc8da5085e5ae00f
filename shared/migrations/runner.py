"""Bring a database to the newest schema, or back by one step.

Migrations are numbered; each runs in its own transaction with short lock waits, and suits the code of the release
before it, so that a deployment may migrate first and replace its processes afterwards.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, text

from shared.advisory_locks import AdvisoryLock, take

LOCK_TIMEOUT = "5s"
STATEMENT_TIMEOUT = "15min"


def migrate(engine: Engine, revision: str = "head") -> None:
    """Upgrade to a revision; two runs at once wait for each other."""
    with engine.begin() as connection:
        _prepare(connection)
        command.upgrade(_config(connection), revision)


def downgrade(engine: Engine, revision: str = "-1") -> None:
    """Go back to a revision, by default one step."""
    with engine.begin() as connection:
        _prepare(connection)
        command.downgrade(_config(connection), revision)


def _prepare(connection: Connection) -> None:
    take(connection, AdvisoryLock.MIGRATIONS)
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))


def _config(connection: Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
