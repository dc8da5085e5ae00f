"""Insert rows for tests, with invented values for every column that a test does not name."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Column, Table, insert, text

from shared.db.database import Database

_MADE_UP: dict[type, Any] = {
    str: lambda: uuid4().hex,
    int: lambda: 1,
    bool: lambda: False,
    bytes: lambda: bytes(32),
    datetime: lambda: datetime.now(UTC),
    date: lambda: datetime.now(UTC).date(),
    Decimal: lambda: Decimal(1),
    UUID: uuid4,
    object: dict,  # JSON
}


def plant(database: Database, table: Table, **values: Any) -> None:
    """Insert a row. Foreign keys are not checked, so it needs no other rows."""
    plant_all(database, [(table, values)])


def plant_all(database: Database, rows: Iterable[tuple[Table, Mapping[str, Any]]]) -> None:
    """Insert many rows in one statement, likewise."""
    with database.transaction() as session:
        session.execute(text("SET LOCAL session_replication_role = replica"))
        for table, values in rows:
            session.execute(insert(table).values({**_made_up(table, values), **values}))


def _made_up(table: Table, values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {
        column.name: _make_up(column)
        for column in table.c
        if column.name not in values and not column.nullable and column.server_default is None
    }


def _make_up(column: Column[Any]) -> Any:
    return _MADE_UP[column.type.python_type]()
