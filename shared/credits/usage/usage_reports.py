"""Usage reports over a span of time, by dimension and by hour or day, exact up to the last settled call."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row

from shared.credits.authorization import UsageScope, authorize_administrative_reading
from shared.credits.prices import TokenCounts
from shared.credits.usage.usage_query import SUMS, Dimension, Interval, statement
from shared.db.database import Session
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor
from shared.identity.access.permissions import Permission

MAX_GROUPS = 10_000
MAX_DAYS = 366


# docs/specification/credits.md#usage
class Window(StrEnum):
    """The window of a report: a length of time that ends now."""

    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"

    @property
    def length(self) -> timedelta:
        """The window as a timedelta."""
        return {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}[self.value]


MODEL_WINDOW = Window.DAY
"""The window of the usage figures in the model catalog."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageCriteria:
    """The span, grouping and filters of a report.

    The span is a window that ends now, or the time from `starts_at` to `ends_at`. If `ends_at` is None, the span
    ends now.

    Without dimensions the report has one group, or one group for each step of the series. Filters select the calls
    that have the given values.
    """

    window: Window | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    interval: Interval | None = None
    group_by: tuple[Dimension, ...] = ()
    filters: Mapping[Dimension, str | UUID] = field(default_factory=dict)

    def check(self) -> None:
        """Raise ValidationFailed for a span that is contradictory, empty or longer than MAX_DAYS."""
        if self.window is not None:
            if self.starts_at is not None or self.ends_at is not None:
                raise invalid_field("window", "goes without from and to", location="query")
            return
        if self.starts_at is None:
            raise invalid_field("from", "is needed where there is no window", location="query")
        ends_at = self.ends_at or datetime.now(UTC)
        if ends_at <= self.starts_at:
            raise invalid_field(
                "to" if self.ends_at else "from", "must leave time between from and to", location="query"
            )
        if ends_at - self.starts_at > timedelta(days=MAX_DAYS):
            raise invalid_field("from", f"must be at most {MAX_DAYS} days before to", location="query")


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum(TokenCounts):
    """The sum of some calls' tokens and cost; `cost` in µcr."""

    invocations: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageGroup:
    """The sum of the calls with one combination of values. In a series, each step has groups of its own.

    A key is None for calls without that value.
    """

    step: datetime | None
    keys: tuple[str | None, ...]
    sum: UsageSum


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """The usage of a span: at most MAX_GROUPS groups, by step and descending cost.

    `is_truncated` is true if the span has more groups.
    """

    criteria: UsageCriteria
    starts_at: datetime
    ends_at: datetime
    total: UsageSum
    groups: tuple[UsageGroup, ...]
    is_truncated: bool


def usage(
    session: Session, organization_id: UUID, criteria: UsageCriteria, *, user_id: UUID | None = None
) -> UsageReport:
    """Return the usage of an organization, or of one of its users. The caller authorizes. Raises ValidationFailed."""
    criteria.check()
    parameters = {
        "organization_id": str(organization_id),
        "own": None if user_id is None else str(user_id),
        "from": criteria.starts_at,
        "to": criteria.ends_at,
        "length": criteria.window.length.total_seconds() if criteria.window else None,
        # Read two rows more: one for the total, and one to detect that the span has more groups.
        "limit": MAX_GROUPS + 2,
        **{dimension.value: str(value) for dimension, value in criteria.filters.items()},
    }
    asked = statement(
        criteria.group_by,
        frozenset(criteria.filters),
        criteria.interval,
        of_one_user=user_id is not None,
    )
    total, *rows = session.execute(asked, parameters).all()
    _refuse_pruned(total)
    return UsageReport(
        criteria=criteria,
        starts_at=total.starts_at,
        ends_at=total.ends_at,
        total=_sum(total),
        groups=tuple(_group(row, len(criteria.group_by)) for row in rows[:MAX_GROUPS]),
        is_truncated=len(rows) > MAX_GROUPS,
    )


def scoped_usage(session: Session, scope: UsageScope, criteria: UsageCriteria) -> UsageReport:
    """Return the usage of the scope that `authorize_usage` returned. Raises ValidationFailed."""
    return usage(session, scope.organization_id, criteria, user_id=scope.user_id)


def read_usage(
    session: Session, *, actor: Actor, organization_id: UUID, criteria: UsageCriteria
) -> UsageReport:
    """Return the result of `usage` to an administrator. Raises PermissionDenied, ResourceNotFound, ValidationFailed."""
    authorize_administrative_reading(session, actor, Permission.USAGE_READ, organization_id)
    return usage(session, organization_id, criteria)


def model_usage(session: Session) -> Mapping[str, tuple[int, int]]:
    """Return the tokens and invocations of each model within MODEL_WINDOW, over all organizations."""
    span = {"from": None, "to": None, "length": MODEL_WINDOW.length.total_seconds(), "limit": None}
    _, *rows = session.execute(statement((Dimension.MODEL,), of_all=True), span)
    return {row.key_0: (int(row.prompt_tokens + row.completion_tokens), int(row.invocations)) for row in rows}


def _group(row: Row[Any], keys: int) -> UsageGroup:
    values = [getattr(row, f"key_{place}") for place in range(keys)]
    return UsageGroup(
        step=row.step, keys=tuple(None if value is None else str(value) for value in values), sum=_sum(row)
    )


def _refuse_pruned(total: Row[Any]) -> None:
    """Raise ValidationFailed if the span begins or ends within an hour whose records were pruned."""
    for name, is_pruned in (("from", total.starts_at_is_pruned), ("to", total.ends_at_is_pruned)):
        if is_pruned:
            raise invalid_field(
                name,
                "must be on the hour (UTC): single records of that time are no longer kept",
                location="query",
            )


def _sum(row: Row[Any]) -> UsageSum:
    return UsageSum(**dict(zip(SUMS, map(int, row[-len(SUMS) :]), strict=True)))
