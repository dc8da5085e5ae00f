"""Pagination by the id of the last item seen: the cost of a page does not grow with its number."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypedDict, TypeVar, Unpack
from uuid import UUID

from sqlalchemy import Column, ColumnElement, Row, Select, select, tuple_

from shared.db.database import Session
from shared.errors import FieldError, ValidationFailed

T = TypeVar("T")
Make = Callable[[Row[Any]], T]
"""What makes an item of a row."""

DEFAULT_LIMIT = 50
MAX_LIMIT = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[T]):
    """Some items, and where to go on; `next_cursor` is None on the last page."""

    items: tuple[T, ...]
    next_cursor: str | None


class Position(TypedDict, total=False):
    """Where a page begins and how long it is, as every listing takes it by keyword."""

    cursor: str | None
    limit: int


def oldest_first(
    session: Session, statement: Select[Any], key: Column[UUID], make: Make[T], **page: Unpack[Position]
) -> Page[T]:
    """Run a select in the order of its ids; `key` is the id column and must be selected."""
    return _page(session, statement.order_by(key), key, make, page, is_after=key.__gt__)


def newest_first(
    session: Session, statement: Select[Any], key: Column[UUID], make: Make[T], **page: Unpack[Position]
) -> Page[T]:
    """Run a select in the reverse order of its ids."""
    return _page(session, statement.order_by(key.desc()), key, make, page, is_after=key.__lt__)


def latest_first(
    session: Session,
    statement: Select[Any],
    moment: Column[datetime],
    key: Column[UUID],
    make: Make[T],
    **page: Unpack[Position],
) -> Page[T]:
    """Run a select in the reverse order of a moment, for rows whose ids tell no time; `key` must be selected.

    The list's own index begins with its owner and has this order.
    """

    def is_after(cursor: UUID) -> ColumnElement[bool]:
        reached = select(moment).where(key == cursor).correlate(None).scalar_subquery()
        return tuple_(moment, key) < tuple_(reached, cursor)

    ordered = statement.order_by(moment.desc(), key.desc())
    return _page(session, ordered, key, make, page, is_after=is_after)


def _page(
    session: Session,
    statement: Select[Any],
    key: Column[UUID],
    make: Make[T],
    page: Position,
    *,
    is_after: Callable[[UUID], ColumnElement[bool]],
) -> Page[T]:
    cursor = page.get("cursor")
    if cursor is not None:
        statement = statement.where(is_after(_parse_cursor(cursor)))
    limit = page.get("limit", DEFAULT_LIMIT)
    if not 1 <= limit <= MAX_LIMIT:
        message = f"must be from 1 to {MAX_LIMIT}"
        raise ValidationFailed(errors=[FieldError(location="query", name="limit", message=message)])
    rows = session.execute(statement.limit(limit + 1)).all()
    more = len(rows) > limit
    items = tuple(make(row) for row in rows[:limit])
    return Page(items=items, next_cursor=str(rows[limit - 1]._asdict()[key.key]) if more else None)


def _parse_cursor(cursor: str) -> UUID:
    try:
        return UUID(cursor)
    except ValueError as error:
        message = "is not a cursor that this list gave"
        raise ValidationFailed(
            errors=[FieldError(location="query", name="cursor", message=message)]
        ) from error
