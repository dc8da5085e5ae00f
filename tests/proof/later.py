"""The same database two hours later: over these connections, every `now()` is two hours ahead.

So a sweep over them finds everything due, while a running flow keeps the present time.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import psycopg2
from sqlalchemy import event

from shared.db.database import Database

_AHEAD = """
CREATE SCHEMA later;
GRANT USAGE ON SCHEMA later TO public;
CREATE FUNCTION later.now() RETURNS timestamptz LANGUAGE sql STABLE
    AS 'SELECT pg_catalog.now() + interval ''2 h''';
CREATE FUNCTION later.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE
    AS 'SELECT pg_catalog.clock_timestamp() + interval ''2 h''';
"""


@contextmanager
def database_later(url: str, administrator_url: str) -> Iterator[Database]:
    """Open the database with its clock two hours ahead."""
    with (
        closing(psycopg2.connect(administrator_url)) as administrator,
        administrator,
        administrator.cursor() as cursor,
    ):
        cursor.execute(_AHEAD)
    database = Database(url)
    event.listen(database.engine, "do_connect", _look_there_first)
    try:
        yield database
    finally:
        database.dispose()


def _look_there_first(_: Any, __: Any, ___: Any, options: dict[str, Any]) -> None:
    options["options"] += " -c search_path=later,pg_catalog,public"
