"""Report usage in a window by model or principal: from hourly rollups, exact to the last settled call.

Rollups hold the records before their mark (`rollups.py`); the few minutes after it are added from the records. A
window begins on a full hour: 24h is the last 24 hours and what has passed of the hour before them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text

from shared.database import Session

MAX_GROUPS = 1000
_SUMS = ("invocations", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")


class Window(StrEnum):
    """How far back a report goes (docs/specification/credits.md#usage)."""

    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"

    @property
    def length(self) -> timedelta:
        """Its length."""
        return {"24h": timedelta(days=1), "7d": timedelta(days=7), "30d": timedelta(days=30)}[self.value]


class GroupBy(StrEnum):
    """By what a report is broken down."""

    MODEL = "model"
    PRINCIPAL = "principal"
    DEPLOYMENT = "deployment"
    USER = "user"
    IDENTITY = "identity"
    KEY = "key"
    DISTRIBUTION = "distribution"

    @property
    def column(self) -> str:
        """The column with its keys."""
        return {"model": "model", "key": "api_key_id"}.get(self.value, f"{self.value}_id")


MODEL_WINDOW = Window.MONTH
"""The recent window of the catalog's figures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageSum:
    """What some calls consumed; `cost` in µcr."""

    invocations: int
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    reasoning_tokens: int
    cost: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageGroup:
    """What the calls of one model, user and so on consumed; the key is None for calls without one."""

    key: str | None
    sum: UsageSum


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageReport:
    """A window's usage, the dearest groups first; `is_truncated` when there are more than MAX_GROUPS."""

    window: Window
    group_by: GroupBy
    starts_at: datetime
    ends_at: datetime
    total: UsageSum
    groups: tuple[UsageGroup, ...]
    is_truncated: bool


def usage(
    session: Session,
    organization_id: UUID,
    *,
    window: Window,
    group_by: GroupBy,
    user_id: UUID | None = None,
) -> UsageReport:
    """Report an organization's usage, or what one of its users used."""
    parameters = {
        "organization_id": str(organization_id),
        "user_id": None if user_id is None else str(user_id),
        "length": window.length,
        "limit": MAX_GROUPS + 2,
    }
    rows = session.execute(_REPORTS[group_by], parameters).all()
    total = next(row for row in rows if row.is_total)
    groups = tuple(
        UsageGroup(key=None if row.key is None else str(row.key), sum=_sum(row))
        for row in rows
        if not row.is_total
    )
    return UsageReport(
        window=window,
        group_by=group_by,
        starts_at=total.starts_at,
        ends_at=total.ends_at,
        total=_sum(total),
        groups=groups[:MAX_GROUPS],
        is_truncated=len(groups) > MAX_GROUPS,
    )


def model_usage(session: Session) -> Mapping[str, tuple[int, int]]:
    """Give the tokens and invocations of each model in the last MODEL_WINDOW, over all organizations.

    From rollups only, so a few minutes late.
    """
    rows = session.execute(_MODEL_USAGE, {"length": MODEL_WINDOW.length})
    return {row.model: (int(row.tokens), int(row.invocations)) for row in rows}


def _sum(row: Row[Any]) -> UsageSum:
    values = row._asdict()
    return UsageSum(**{name: int(values[name]) for name in _SUMS})


def _report(column: str) -> str:
    sums = ", ".join(f"sum({name}) AS {name}" for name in _SUMS)
    return f"""
WITH span AS MATERIALIZED (
    SELECT date_trunc('hour', now() - CAST(:length AS interval), 'UTC') AS starts_at, rolled_up_to FROM usage_rollup
), used AS (
    SELECT {column} AS key, {sums} FROM usage_hours
    WHERE organization_id = CAST(:organization_id AS uuid) AND hour >= (SELECT starts_at FROM span)
        AND (CAST(:user_id AS uuid) IS NULL OR user_id = CAST(:user_id AS uuid))
    GROUP BY 1
    UNION ALL
    SELECT {column}, count(*), {sums.partition(", ")[2]} FROM usage_records
    WHERE organization_id = CAST(:organization_id AS uuid)
        AND occurred_at >= (SELECT greatest(starts_at, rolled_up_to) FROM span)
        AND (CAST(:user_id AS uuid) IS NULL OR user_id = CAST(:user_id AS uuid))
    GROUP BY 1
)
SELECT key, grouping(key) = 1 AS is_total, (SELECT starts_at FROM span) AS starts_at, now() AS ends_at,
    {", ".join(f"coalesce(sum({name}), 0) AS {name}" for name in _SUMS)}
FROM used GROUP BY GROUPING SETS ((key), ())
ORDER BY is_total DESC, cost DESC, invocations DESC, key LIMIT :limit
"""  # noqa: S608 (columns named by this module only)


_REPORTS = {group_by: text(_report(group_by.column)) for group_by in GroupBy}
_MODEL_USAGE = text(
    """
SELECT model, sum(prompt_tokens + completion_tokens) AS tokens, sum(invocations) AS invocations
FROM usage_hours WHERE hour >= date_trunc('hour', now() - CAST(:length AS interval), 'UTC') GROUP BY model
"""
)
