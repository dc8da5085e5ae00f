"""Usage records: the tokens, cost and attribution of each settled call, without prompts or replies.

Each filter has an index in the order of time, so with one filter every page costs the same. A scan of one index
with several filters could read many records that the other filters exclude; `_find_crossed` avoids that.

One query stays slow: one where many records match all filters and all of these records are old. An index for each
pair of filters was rejected, because every call would write it. Clients make this query faster by setting `from`
and `to`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, func, select

from shared.credits.authorization import UsageScope, authorize_administrative_reading
from shared.credits.holds import Attribution, principal_of
from shared.credits.settlement import Status
from shared.credits.tables import usage_records
from shared.db.database import Session
from shared.db.schema import columns_of
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor
from shared.identity.access.permissions import Permission
from shared.pagination import DEFAULT_LIMIT, MAX_LIMIT, Page, descending, unknown_cursor

MAX_FILE_RECORDS = 10_000
"""The largest number of records in one downloaded file."""
RECENT_RECORDS = 2_000
"""The number of newest records in which matches of several filters are searched first."""
MAX_SORTED_RECORDS = 500
"""Up to this many matches are read unordered and sorted in Python."""

_table = usage_records.c
_principal = func.coalesce(_table.principal_id, _table.identity_id, _table.user_id)
_NEWEST_FIRST = descending(_table.occurred_at, _table.invocation_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageRecord(Attribution):
    """One settled call, with `cost` in µcr.

    The principal is the receiving identity. Without one it is the daemon, and without a daemon the user.
    """

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
    occurred_at: datetime
    corrected_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordFilter:
    """The values and the span of time that records must match; a field with None matches every record."""

    model: str | None = None
    principal_id: UUID | None = None
    api_key_id: UUID | None = None
    status: Status | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None

    def conditions(self) -> list[ColumnElement[bool]]:
        """Return the SQL conditions for the values. Every condition except the status `completed` has an index."""
        equal = (
            (_table.model, self.model),
            (_principal, self.principal_id),
            (_table.api_key_id, self.api_key_id),
            (_table.status, self.status),
        )
        return [column == value for column, value in equal if value is not None]

    def span(self) -> list[ColumnElement[bool]]:
        """Return the SQL conditions for the span of time."""
        bounds = (
            None if self.starts_at is None else _table.occurred_at >= self.starts_at,
            None if self.ends_at is None else _table.occurred_at < self.ends_at,
        )
        return [bound for bound in bounds if bound is not None]


ALL_RECORDS = RecordFilter()
_RECORDS = select(*columns_of(UsageRecord, usage_records))


def list_usage_records(
    session: Session,
    organization_id: UUID,
    *,
    user_id: UUID | None = None,
    wanted: RecordFilter = ALL_RECORDS,
    cursor: UUID | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[UsageRecord]:
    """Return a page of usage records, newest first. `cursor` is the last invocation id of the previous page.

    The caller authorizes. Raises ValidationFailed for a cursor that is not a record of the organization.
    """
    base_conditions = [_table.organization_id == organization_id, *wanted.span()]
    conditions = wanted.conditions()
    # A list for a file has a high limit and reads every match, so it scans one index.
    is_crossed = len(conditions) + (user_id is not None) > 1 and limit <= MAX_LIMIT
    if user_id is not None:
        base_conditions.append(_table.user_id == user_id)
    if cursor is not None:
        base_conditions.append(_NEWEST_FIRST.after(*_find_position(session, organization_id, cursor)))
    find = _find_crossed if is_crossed else _find_newest
    rows = find(session, base_conditions, conditions, limit + 1)
    items = tuple(_record(row) for row in rows[:limit])
    return Page(items=items, next_cursor=str(items[-1].invocation_id) if len(rows) > limit else None)


def read_usage_records(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    wanted: RecordFilter = ALL_RECORDS,
    cursor: UUID | None = None,
    limit: int = DEFAULT_LIMIT,
) -> Page[UsageRecord]:
    """Return a page of usage records to an administrator.

    Raises PermissionDenied, ResourceNotFound, ValidationFailed.
    """
    authorize_administrative_reading(session, actor, Permission.USAGE_READ, organization_id)
    return list_usage_records(session, organization_id, wanted=wanted, cursor=cursor, limit=limit)


def find_usage_records(
    session: Session, organization_id: UUID, invocation_ids: Sequence[UUID]
) -> Sequence[UsageRecord]:
    """Return the records of these calls, in no order; an unsettled call has none. The caller authorizes."""
    found = _RECORDS.where(
        _table.invocation_id.in_(invocation_ids), _table.organization_id == organization_id
    )
    return [_record(row) for row in session.execute(found)]


def list_all_usage_records(
    session: Session, scope: UsageScope, wanted: RecordFilter
) -> tuple[UsageRecord, ...]:
    """Return all matching records, for a file. Raises ValidationFailed if more than MAX_FILE_RECORDS match."""
    page = list_usage_records(
        session, scope.organization_id, user_id=scope.user_id, wanted=wanted, limit=MAX_FILE_RECORDS
    )
    if page.next_cursor is not None:
        message = f"more than {MAX_FILE_RECORDS} records: choose a shorter span or more filters"
        raise invalid_field("from", message, location="query")
    return page.items


def _find_newest(
    session: Session,
    base_conditions: Sequence[ColumnElement[bool]],
    conditions: Sequence[ColumnElement[bool]],
    count: int,
) -> Sequence[Row[Any]]:
    """Return the newest matching records by scanning one index in its order."""
    wanted = _RECORDS.where(*base_conditions, *conditions)
    return session.execute(_NEWEST_FIRST.order(wanted).limit(count)).all()


def _find_crossed(
    session: Session,
    base_conditions: Sequence[ColumnElement[bool]],
    conditions: Sequence[ColumnElement[bool]],
    count: int,
) -> Sequence[Row[Any]]:
    """Return the newest records that match several filters.

    Search the newest RECENT_RECORDS first. If that finds too few, read all matches unordered if there are few of
    them, and otherwise scan one index.
    """
    passed = _NEWEST_FIRST.order(select(_table.occurred_at).where(*base_conditions))
    moment = session.execute(passed.offset(RECENT_RECORDS).limit(1)).scalar()
    recent = () if moment is None else (_table.occurred_at >= moment,)
    found = _find_newest(session, (*base_conditions, *recent), conditions, count)
    if moment is None or len(found) == count:
        return found
    # Materialize the subquery, so that the planner plans for all matches. If it planned for the first few matches,
    # it would scan one index. For all matches it combines two indexes unless both indexes begin with the
    # organization; for user and model it reads one index in table order.
    matches = _RECORDS.where(*base_conditions, *conditions).cte("matches").prefix_with("MATERIALIZED")
    some = session.execute(select(matches).limit(MAX_SORTED_RECORDS)).all()
    if len(some) == MAX_SORTED_RECORDS:
        return _find_newest(session, base_conditions, conditions, count)
    return sorted(some, key=lambda row: (row.occurred_at, row.invocation_id), reverse=True)[:count]


def _find_position(session: Session, organization_id: UUID, cursor: UUID) -> tuple[datetime, UUID]:
    statement = select(_table.occurred_at).where(
        _table.invocation_id == cursor, _table.organization_id == organization_id
    )
    occurred_at = session.execute(statement).scalar()
    if occurred_at is None:
        raise unknown_cursor()
    return occurred_at, cursor


def _record(row: Row[Any]) -> UsageRecord:
    values = {**row._asdict(), "status": Status(row.status), "principal_id": principal_of(row)}
    return UsageRecord(**values)
