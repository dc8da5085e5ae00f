"""Usage reports, as frozen dataclasses. Amounts are exact decimal numbers of credits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import ClassVar
from uuid import UUID


@dataclass(frozen=True)
class UsageSum:
    """The tokens and credits of a set of model calls."""

    # Read members in snake_case: routes below `/v1` use the names of OpenAI's API style.
    is_snake_case: ClassVar[bool] = True

    invocations: int
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    cost: Decimal


@dataclass(frozen=True)
class UsageGroup(UsageSum):
    """The usage of one combination of dimension values. With an interval, the usage in one hour or day."""

    starts_at: datetime | None
    keys: Mapping[str, str | None]


@dataclass(frozen=True)
class UsageReport:
    """The usage of a time span. `total` also includes the groups that are missing from a truncated report."""

    is_snake_case: ClassVar[bool] = True

    starts_at: datetime
    ends_at: datetime
    total: UsageSum
    data: tuple[UsageGroup, ...]
    is_truncated: bool


@dataclass(frozen=True)
class KeyBudget:
    """A budget that limits a credential's calls. `resets_at` is None if the budget has no period."""

    is_snake_case: ClassVar[bool] = True

    id: UUID
    subject_kind: str
    subject_id: UUID
    model: str | None
    unit: str
    period: str
    amount: Decimal
    spent: Decimal
    held: Decimal
    remaining: Decimal
    resets_at: datetime | None


@dataclass(frozen=True)
class KeyUsage:
    """The spending and limits of a credential. `models` lists the models that the credential may call (None: all)."""

    is_snake_case: ClassVar[bool] = True

    id: UUID
    label: str | None
    organization_id: UUID
    user_id: UUID | None
    identity_id: UUID | None
    deployment_id: UUID | None
    usage: Decimal
    usage_daily: Decimal
    usage_weekly: Decimal
    usage_monthly: Decimal
    limit: Decimal | None
    limit_remaining: Decimal | None
    limit_reset: str | None
    models: tuple[str, ...] | None
    budgets: tuple[KeyBudget, ...]
    expires_at: datetime | None
