"""What every domain's `tables.py` builds on: one metadata, one naming rule for constraints, the column kinds."""

from dataclasses import fields
from typing import Any
from uuid import UUID

from sqlalchemy import CheckConstraint, Column, DateTime, MetaData, Table, UniqueConstraint, Uuid, func

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
    """Make a primary-key column of UUIDs."""
    return Column(name, Uuid, primary_key=True, **options)


def required(name: str, *kind: Any, **options: Any) -> Column[Any]:
    """Make a column that no row leaves empty; `kind` is a type, a foreign key or both."""
    return Column(name, *kind, nullable=False, **options)


def instant(name: str, **options: Any) -> Column[Any]:
    """Make a column of points in time, UTC."""
    return Column(name, DateTime(timezone=True), **options)


def created_at() -> Column[Any]:
    """Make the column that says when the row was written, by the database's clock."""
    return instant("created_at", nullable=False, server_default=func.now())


def one_of(column: str, *words: str) -> CheckConstraint:
    """Make the check, named for its column, that a column has one of some words."""
    quoted = ", ".join(f"'{word}'" for word in words)
    return CheckConstraint(f"{column} IN ({quoted})", name=column)


def unique_group(name: str, *columns: str) -> UniqueConstraint:
    """Make a constraint for which two rows are alike also where both leave a column empty."""
    return UniqueConstraint(*columns, name=name, postgresql_nulls_not_distinct=True)


def columns_of(shape: type[Any], *tables: Table) -> list[Column[Any]]:
    """Give a column for each field of a dataclass, of the first table that has it."""
    return [next(table.c[field.name] for table in tables if field.name in table.c) for field in fields(shape)]
