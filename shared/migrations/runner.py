"""Bring a database to the newest schema, and load its functions.

Migrations are numbered, and all that are missing run in one transaction with short lock waits. Each suits the code of
the release before it, so that a deployment migrates first and replaces its processes afterwards, and goes back by
starting the release before. So nothing takes a migration back (docs/decisions.md#migrations-go-forward).
"""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from shared.db.advisory_locks import AdvisoryLock, take
from shared.migrations.functions import load_functions

NEWEST = "head"
LOCK_TIMEOUT = "5s"
STATEMENT_TIMEOUT = "15min"


def migrate(engine: Engine, revision: str = NEWEST) -> None:
    """Upgrade to a revision; two runs at once wait for each other. Functions are those of the newest."""
    with engine.begin() as connection:
        begin_alone(connection)
        command.upgrade(_config(connection), revision)
        if revision == NEWEST:
            load_functions(connection)


def begin_alone(connection: Connection) -> None:
    """Wait until no other run migrates or grants, however long it takes; then bound what this transaction does."""
    connection.execute(text("SET LOCAL lock_timeout = 0"))
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    take(connection, AdvisoryLock.MIGRATIONS)
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))


def newest_revision() -> str:
    """Give the number of the newest migration of this release."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
