"""Migrate a database to the newest schema, and load its functions.

Migrations are numbered; all missing ones run in one transaction with short lock waits. Each works with the code of
the previous release, so a deployment migrates first and replaces its processes afterwards, and is rolled back by
starting the previous release. No migration is reverted (docs/decisions.md#migrations-go-forward).
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
    """Upgrade to a revision and, for the newest, load the functions. Concurrent runs wait for each other."""
    with engine.begin() as connection:
        begin_alone(connection)
        command.upgrade(_config(connection), revision)
        if revision == NEWEST:
            load_functions(connection)


def begin_alone(connection: Connection) -> None:
    """Wait, without limit, until no other run migrates or grants; then limit this transaction's waits."""
    # A second run waits for the first one's whole migration, which may take long.
    connection.execute(text("SET LOCAL lock_timeout = 0"))
    connection.execute(text("SET LOCAL statement_timeout = 0"))
    take(connection, AdvisoryLock.MIGRATIONS)
    connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'"))
    connection.execute(text(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'"))


def newest_revision() -> str:
    """Return the number of this release's newest migration."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
