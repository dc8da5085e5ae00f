"""Usage records: what each call consumed and cost, and who is responsible; never what was said in it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, select, tuple_

from shared.credits.settlement import Status
from shared.credits.tables import usage_records
from shared.database import Session
from shared.errors import FieldError, ValidationFailed
from shared.identity.pages import DEFAULT_LIMIT, Page


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """One settled call; `cost` in µcr."""

    invocation_id: UUID
    organization_id: UUID
    model: str
    provider: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: int
    status: Status
    is_estimated: bool
    user_id: UUID | None
    identity_id: UUID | None
    principal_id: UUID | None
    deployment_id: UUID | None
    occurred_at: datetime
    corrected_at: datetime | None


def list_usage_records(
    session: Session, organization_id: UUID, *, cursor: UUID | None = None, limit: int = DEFAULT_LIMIT
) -> Page[UsageRecord]:
    """List an organization's records, newest first; a cursor is the last invocation of the page before."""
    position = (usage_records.c.occurred_at, usage_records.c.invocation_id)
    statement = select(usage_records).where(usage_records.c.organization_id == organization_id)
    if cursor is not None:
        statement = statement.where(tuple_(*position) < tuple_(*_position(session, organization_id, cursor)))
    statement = statement.order_by(*(column.desc() for column in position)).limit(limit + 1)
    rows = session.execute(statement).all()
    items = tuple(_record(row) for row in rows[:limit])
    return Page(items=items, next_cursor=str(items[-1].invocation_id) if len(rows) > limit else None)


def _position(session: Session, organization_id: UUID, cursor: UUID) -> tuple[datetime, UUID]:
    statement = select(usage_records.c.occurred_at).where(
        usage_records.c.invocation_id == cursor, usage_records.c.organization_id == organization_id
    )
    occurred_at = session.execute(statement).scalar()
    if occurred_at is None:
        message = "is not a cursor that this list gave"
        raise ValidationFailed(errors=[FieldError(location="query", name="cursor", message=message)])
    return occurred_at, cursor


def _record(row: Row[Any]) -> UsageRecord:
    return UsageRecord(**{**row._asdict(), "status": Status(row.status)})
