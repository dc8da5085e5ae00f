"""The server-side functions: one file each, `<domain>/sql/<function>.sql`, loaded whenever the schema is migrated.

A file is the current source of its function. A change is an edit of the file; a migration is needed only to drop one
whose arguments or result change, because `CREATE OR REPLACE` would leave the old one beside it or refuse.
"""

from pathlib import Path

from sqlalchemy import Connection

_SHARED = Path(__file__).parents[1]


def function_files() -> dict[str, Path]:
    """Find the files by the functions' names."""
    return {path.stem: path for path in sorted(_SHARED.glob("*/sql/*.sql"))}


def load_functions(connection: Connection) -> None:
    """Create or replace all of them."""
    # Some call others of later files; what a body names is looked up when it runs.
    _run(connection, "SET LOCAL check_function_bodies = off")
    for path in function_files().values():
        _run(connection, path.read_text())


def load_function(connection: Connection, name: str) -> None:
    """Create one that a migration needs at once, for a trigger."""
    _run(connection, function_files()[name].read_text())


def _run(connection: Connection, statement: str) -> None:
    """Run a text as it stands: neither `:name` nor `%` means anything in it."""
    connection.connection.cursor().execute(statement)
