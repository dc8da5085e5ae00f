"""Record the statements that a piece of work sends to the database, through SQLAlchemy or the driver."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event

from shared.db import database as sessions
from shared.db import statements
from shared.db.database import Database


@contextmanager
def own_statements(database: Database) -> Iterator[list[str]]:
    """Record the statements of this thread; those of other threads renew leases and read wake-up messages."""
    seen: list[str] = []
    own, fetch_all = threading.get_ident(), statements.fetch_all

    def keep(statement: str) -> None:
        if threading.get_ident() == own:
            seen.append(statement)

    def fetch(driver: Any, statement: Any, values: Any) -> list[Any]:
        keep(statement if isinstance(statement, str) else statement.text)
        return fetch_all(driver, statement, values)

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        keep(statement)

    event.listen(database.engine, "before_cursor_execute", note)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(statements, "fetch_all", fetch)
            patch.setattr(sessions, "fetch_all", fetch)
            yield seen
    finally:
        event.remove(database.engine, "before_cursor_execute", note)
