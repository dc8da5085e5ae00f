"""Add a row to each table of any schema, from its columns, keys and check constraints alone.

The values come from the catalog of Postgres, so this works for every earlier schema. If a check constraint lists
values, each of them is tried. Nullable columns are first left empty, and then filled.
"""

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError

MOST_TRIES = 400
_COLUMNS = text(
    """
SELECT c.table_name AS of, c.column_name AS name, c.udt_name AS type, c.is_nullable = 'YES' AS is_nullable,
    c.column_default IS NOT NULL OR c.is_identity = 'YES' AS has_default
FROM information_schema.columns c JOIN information_schema.tables t USING (table_schema, table_name)
WHERE c.table_schema = 'public' AND t.table_type = 'BASE TABLE' AND c.table_name <> 'alembic_version'
    AND c.is_generated = 'NEVER'
ORDER BY c.table_name, c.ordinal_position
"""
)
_KEYS = text(
    """
SELECT conrelid::regclass::text AS of, confrelid::regclass::text AS to_table, a.attname AS name, b.attname AS to_column
FROM pg_constraint k, unnest(k.conkey, k.confkey) AS pair (mine, theirs)
JOIN LATERAL (SELECT attname FROM pg_attribute WHERE attrelid = k.conrelid AND attnum = mine) a ON true
JOIN LATERAL (SELECT attname FROM pg_attribute WHERE attrelid = k.confrelid AND attnum = theirs) b ON true
WHERE k.contype = 'f' AND k.connamespace = 'public'::regnamespace
"""
)
_CHECKS = text(
    """
SELECT conrelid::regclass::text AS of, pg_get_constraintdef(oid) AS said FROM pg_constraint
WHERE contype = 'c' AND connamespace = 'public'::regnamespace
"""
)
_LISTED = re.compile(r"(\w+)\)?(?:::text)? = ANY \(+ARRAY\[(.*?)\]")
_VALUES: dict[str, Callable[[], Any]] = {
    "text": lambda: f"text-{uuid4()}",
    "varchar": lambda: f"text-{uuid4()}",
    "uuid": uuid4,
    "int2": lambda: 1,
    "int4": lambda: 1,
    "int8": lambda: 1,
    "numeric": lambda: 1,
    "bool": lambda: True,
    "bytea": lambda: uuid4().bytes * 2,
    "jsonb": lambda: "{}",
    "json": lambda: "{}",
    "date": lambda: "2026-01-31",
    "timestamptz": lambda: "2026-01-31T10:00:00Z",
    "interval": lambda: "1 hour",
    "inet": lambda: "192.0.2.1",
    "tsvector": lambda: "word",
    "_text": lambda: "{}",
    "_varchar": lambda: "{}",
    "_uuid": lambda: "{}",
}


@dataclass
class _Table:
    name: str
    columns: list[Any] = field(default_factory=list)
    keys: dict[str, tuple[str, str]] = field(default_factory=dict)
    listed: dict[str, list[Any]] = field(default_factory=dict)


Shape = tuple[tuple[str, ...], dict[str, Any]]
"""Which columns a row of a table has that was taken, and which of the listed values."""


def add_rows(connection: Connection, shapes: dict[str, Shape]) -> set[str]:
    """Add a row to each table, and return the tables that accepted one.

    `shapes` caches accepted rows, which are tried first.

    The other tables hold all the rows they can: a single one.
    """
    tables, waiting = _read(connection), True
    done: set[str] = set()
    while waiting:
        waiting = False
        for table in tables.values():
            if table.name not in done and _add(connection, table, shapes):
                done.add(table.name)
                waiting = True
    return done


def count_rows(connection: Connection) -> dict[str, int]:
    """Return the number of rows of each table."""
    names = sorted({row.of for row in connection.execute(_COLUMNS)})
    return {at: connection.execute(text(f'SELECT count(*) FROM "{at}"')).scalar_one() for at in names}


def _read(connection: Connection) -> dict[str, _Table]:
    tables: dict[str, _Table] = {}
    for row in connection.execute(_COLUMNS):
        tables.setdefault(row.of, _Table(row.of)).columns.append(row)
    for row in connection.execute(_KEYS):
        tables[row.of].keys[row.name] = (row.to_table, row.to_column)
    for row in connection.execute(_CHECKS):
        for name, values in _LISTED.findall(row.said):
            listed = [re.sub(r"::[\w ]+", "", value).strip(" '()") for value in values.split(",")]
            # Other check constraints refer to some of them.
            tables[row.of].listed[name] = max(tables[row.of].listed.get(name, []), listed, key=len)
    return tables


def _add(connection: Connection, table: _Table, shapes: dict[str, Shape]) -> bool:
    if table.name in shapes:
        names, listed = shapes[table.name]
        columns = [at for at in table.columns if at.name in names or not (at.is_nullable or at.has_default)]
        known = _values(connection, table, columns)
        if known is not None and _insert(connection, table, known | listed):
            return True
    elif connection.execute(text(f'SELECT count(*) FROM "{table.name}"')).scalar():
        return False  # The table already has the only row it can hold.
    for row in itertools.islice(_candidates(connection, table), MOST_TRIES):
        if _insert(connection, table, row):
            shapes[table.name] = tuple(row), {name: row[name] for name in table.listed if name in row}
            return True
    return False


def _insert(connection: Connection, table: _Table, row: dict[str, Any]) -> bool:
    names, marks = ", ".join(f'"{name}"' for name in row), ", ".join(f":{name}" for name in row)
    values = f"({names}) VALUES ({marks})" if row else "DEFAULT VALUES"
    try:
        with connection.begin_nested():
            connection.execute(text(f'INSERT INTO "{table.name}" {values}'), row)
    except DBAPIError:
        return False
    return True


def _candidates(connection: Connection, table: _Table) -> Iterator[dict[str, Any]]:
    """Yield candidate rows: required columns, then more, then all, with each of the listed values."""
    required = [at for at in table.columns if not at.is_nullable and not at.has_default]
    nullable = [at for at in table.columns if at.is_nullable]
    listed = [at for at in table.columns if at.name in table.listed]
    choices = [required, required + nullable]
    choices += [[*required, *some] for n in (1, 2) for some in itertools.combinations(nullable, n)]
    for columns in choices:
        base = _values(connection, table, columns)
        if base is None:
            return
        for values in itertools.product(*(table.listed[at.name] for at in listed)):
            yield base | dict(zip((at.name for at in listed), values, strict=True))


def _values(connection: Connection, table: _Table, columns: list[Any]) -> dict[str, Any] | None:
    """Return a value for each column, or None if a referenced row does not exist yet."""
    found: dict[str, Any] = {}
    for column in columns:
        if column.name not in table.keys:
            found[column.name] = _VALUES[column.type]()
            continue
        to_table, to_column = table.keys[column.name]
        statement = f'SELECT "{to_column}" FROM {to_table} ORDER BY random() LIMIT 1'
        value = connection.execute(text(statement)).scalar()
        if value is None:
            return None
        found[column.name] = value
    return found
