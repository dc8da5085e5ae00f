"""What reports on usage hold, as frozen dataclasses; amounts are exact decimal numbers of credits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import ClassVar
from uuid import UUID


@dataclass(frozen=True)
class UsageSum:
    """What some calls to models consumed."""

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
    """What the calls of one value of each dimension consumed, with an interval in one hour or day."""

    starts_at: datetime | None
    keys: Mapping[str, str | None]


@dataclass(frozen=True)
class UsageReport:
    """The usage of a span of time; `total` counts the groups too that are cut off."""

    is_snake_case: ClassVar[bool] = True

    starts_at: datetime
    ends_at: datetime
    total: UsageSum
    data: tuple[UsageGroup, ...]
    is_truncated: bool


@dataclass(frozen=True)
class KeyBudget:
    """A limit that the calls of a credential count in; `resets_at` is None where no period ends."""

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
    """What a credential has spent, what it has left, and which models it may call (None: all)."""

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
