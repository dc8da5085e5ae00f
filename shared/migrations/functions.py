"""SQL functions: one file each, `<domain>/sql/<function>.sql`, loaded whenever the schema is migrated.

A file is the current source of its function; to change one, edit the file. A migration is needed only to drop a
function if its arguments or result change: CREATE OR REPLACE would keep the old one beside it, or fail.
"""

from pathlib import Path

from sqlalchemy import Connection

_SHARED = Path(__file__).parents[1]


def function_files() -> dict[str, Path]:
    """Return the files by function name."""
    return {path.stem: path for path in sorted(_SHARED.glob("*/sql/*.sql"))}


def load_functions(connection: Connection) -> None:
    """Create or replace all functions."""
    # Off, because some functions call others of later files; names in a body are resolved when it runs.
    _run(connection, "SET LOCAL check_function_bodies = off")
    for path in function_files().values():
        _run(connection, path.read_text())


def load_function(connection: Connection, name: str) -> None:
    """Create one function that a migration needs at once, for a trigger."""
    _run(connection, function_files()[name].read_text())


def _run(connection: Connection, statement: str) -> None:
    """Run a text unchanged: neither `:name` nor `%` is a parameter."""
    # The driver's cursor without parameters, since SQLAlchemy's text() would take `:name` for one.
    connection.connection.cursor().execute(statement)
