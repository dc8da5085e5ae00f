"""The base of every domain's `tables.py`: the shared metadata, the names of constraints, and helpers for columns."""

from dataclasses import fields
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Column, DateTime, MetaData, Table, UniqueConstraint, Uuid, func

# Fix the naming rule, because migrations and error handling refer to constraints by name.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def id_column(name: str = "id", **options: Any) -> Column[UUID]:
    """Return a primary-key column of UUIDs."""
    return Column(name, Uuid, primary_key=True, **options)


def required(name: str, *kind: Any, **options: Any) -> Column[Any]:
    """Return a NOT NULL column. The arguments in `kind` are a type, a foreign key, or both."""
    return Column(name, *kind, nullable=False, **options)


def instant(name: str, **options: Any) -> Column[Any]:
    """Return a column of timestamps with time zone (UTC)."""
    return Column(name, DateTime(timezone=True), **options)


def created_at() -> Column[Any]:
    """Return the column with the row's creation time by the database's clock."""
    return instant("created_at", nullable=False, server_default=func.now())


def one_of(column: str, *words: str) -> CheckConstraint:
    """Return a check constraint, named after the column, that the column's value is one of `words`."""
    quoted = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({quoted})", name=column)


def unique_group(name: str, *columns: str) -> UniqueConstraint:
    """Return a unique constraint in which two nulls count as equal."""
    return UniqueConstraint(*columns, name=name, postgresql_nulls_not_distinct=True)


def columns_of(shape: type[Any], *tables: Table) -> list[Column[Any]]:
    """Return a column for each field of a dataclass: the column of that name in the first table that has one."""
    return [next(table.c[field.name] for table in tables if field.name in table.c) for field in fields(shape)]
