"""Keyset pagination: a page begins after the last item of the one before, so every page costs the same."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypedDict, TypeVar
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Row, Select, select, tuple_

from shared.db.database import Session
from shared.errors import FieldError, ValidationFailed

T = TypeVar("T")
Make = Callable[[Row[Any]], T]
"""A function that makes an item of a row."""

DEFAULT_LIMIT = 50
MAX_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """One page of a list; `next_cursor` is None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None


class Position(TypedDict, total=False):
    """The keyword arguments of every list: the cursor of the page before, and the greatest number of items."""

    cursor: str | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyset:
    """The order of a list: columns that are compared as one tuple; the last one is the unique id of a row."""

    columns: tuple[Column[Any], ...]
    is_descending: bool

    def order(self, statement: Select[Any]) -> Select[Any]:
        """Return the statement in this order."""
        return statement.order_by(
            *(column.desc() if self.is_descending else column.asc() for column in self.columns)
        )

    def after(self, *position: object) -> ColumnElement[bool]:
        """Return the condition of the rows that follow a position; it has a value, or SQL, for each column."""
        # A comparison of tuples is one range of an index; the same comparison spelled out with OR is not.
        own, reached = tuple_(*self.columns), tuple_(*position)
        return own < reached if self.is_descending else own > reached

    def after_row(self, row_id: UUID) -> ColumnElement[bool]:
        """Return the condition of the rows that follow the row of an id; no row follows an unknown id."""
        *leading, key = self.columns
        reached = (
            select(column).where(key == row_id).correlate(None).scalar_subquery() for column in leading
        )
        return self.after(*reached, row_id)


def ascending(*columns: Column[Any]) -> Keyset:
    """Return the order of columns from the least value to the greatest: by a row's id, oldest first."""
    return Keyset(columns=columns, is_descending=False)


def descending(*columns: Column[Any]) -> Keyset:
    """Return the order of columns from the greatest value to the least: by a row's id, newest first."""
    return Keyset(columns=columns, is_descending=True)


def paginate(
    session: Session,
    statement: Select[Any],
    keyset: Keyset,
    make: Make[T],
    *,
    cursor: str | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[T]:
    """Return a page of a select; it must select the id, the keyset's last column.

    `cursor` is the id of the last item of the page before. An index that begins with what the list is filtered by and
    goes on with the keyset's columns makes each page cost the same. Raises ValidationFailed.
    """
    if cursor is not None:
        statement = statement.where(keyset.after_row(_parse_cursor(cursor)))
    if not 1 <= limit <= MAX_LIMIT:
        message = f"must be from 1 to {MAX_LIMIT}"
        raise ValidationFailed(errors=[FieldError(location="query", name="limit", message=message)])
    # One row more than the page tells whether another page follows, without a count.
    rows = session.execute(keyset.order(statement).limit(limit + 1)).all()
    items = tuple(make(row) for row in rows[:limit])
    key = keyset.columns[-1].key
    return Page(items=items, next_cursor=str(rows[limit - 1]._asdict()[key]) if len(rows) > limit else None)


def unknown_cursor() -> ValidationFailed:
    """Return the error for a cursor that no page of the list has returned."""
    message = "is not a cursor that this list returned"
    return ValidationFailed(errors=[FieldError(location="query", name="cursor", message=message)])


def _parse_cursor(cursor: str) -> UUID:
    try:
        return UUID(cursor)
    except ValueError as error:
        raise unknown_cursor() from error
