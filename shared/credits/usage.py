"""Usage records: what each call consumed and cost, and who is responsible; never what was said in it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, select, tuple_

from shared.credits.errors import BillingOrganizationRequired
from shared.credits.settlement import Status
from shared.credits.tables import usage_records
from shared.database import Session
from shared.errors import FieldError, PermissionDenied, ValidationFailed
from shared.identity.callers import Caller, ExecutorKind
from shared.identity.permissions import Permission
from shared.pagination import DEFAULT_LIMIT, Page
from shared.schema import columns_of


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord:
    """One settled call; `cost` in µcr. The principal is the receiving identity, else the daemon, else the user."""

    invocation_id: UUID
    organization_id: UUID
    model: str
    provider: str | None
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost: int
    status: Status
    is_estimated: bool
    user_id: UUID | None
    identity_id: UUID | None
    principal_id: UUID | None
    deployment_id: UUID | None
    api_key_id: UUID | None
    distribution_id: UUID | None
    occurred_at: datetime
    corrected_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageScope:
    """Whose usage may be read: an organization's, or of that only what one user used."""

    organization_id: UUID
    user_id: UUID | None


def authorize_usage(caller: Caller) -> UsageScope:
    """Decide what a caller may read: all of the organization's usage with usage.read, else a member's own.

    Raises BillingOrganizationRequired, PermissionDenied.
    """
    organization_id = caller.organization_id
    if organization_id is None:
        raise BillingOrganizationRequired
    permissions = caller.permissions_on(organization_id=organization_id)
    if Permission.USAGE_READ in permissions:
        return UsageScope(organization_id=organization_id, user_id=None)
    if caller.executor.kind is ExecutorKind.USER and Permission.ORGANIZATION_READ in permissions:
        return UsageScope(organization_id=organization_id, user_id=caller.executor.id)
    raise PermissionDenied(permission=Permission.USAGE_READ)


def list_usage_records(
    session: Session,
    organization_id: UUID,
    *,
    user_id: UUID | None = None,
    cursor: UUID | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[UsageRecord]:
    """List usage records, newest first; a cursor is the last invocation of the page before."""
    position = (usage_records.c.occurred_at, usage_records.c.invocation_id)
    statement = select(*columns_of(UsageRecord, usage_records)).where(
        usage_records.c.organization_id == organization_id
    )
    if user_id is not None:
        statement = statement.where(usage_records.c.user_id == user_id)
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
    principal_id = row.principal_id or row.identity_id or row.user_id
    return UsageRecord(**{**row._asdict(), "status": Status(row.status), "principal_id": principal_id})
