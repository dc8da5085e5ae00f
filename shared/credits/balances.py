"""Read an organization's balance and credit policy; `policies.py` changes the policy."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import Row, text

from shared.credits.authorization import authorize_administrative_reading
from shared.db.database import Session
from shared.identity.access.authorization import Actor
from shared.identity.access.permissions import Permission


class Policy(StrEnum):
    """The credit policy of an organization: spend the whole balance, spend up to a monthly limit, or start no calls."""

    ACTIVE = "active"
    LIMIT = "limit"
    SUSPENDED = "suspended"


class Suspender(StrEnum):
    """The side that suspended an organization's spending; each side lifts only its own suspension."""

    OWNER = "owner"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """An organization's credits, in µcr.

    `available` is the most that a new call may hold; it is negative while calls and storage have cost more than the
    balance. `spent` is the sum of this month's charges. After `storage_refused_from` the organization cannot store
    new content.
    """

    organization_id: UUID
    balance: int
    held: int
    available: int
    policy: Policy
    suspended_by: tuple[Suspender, ...]
    overdraft: int
    spending_limit: int | None
    spent: int
    version: int
    storage_overdue_since: datetime | None
    storage_refused_from: datetime | None


def get_balance(session: Session, organization_id: UUID) -> Balance:
    """Return an organization's balance. The caller authorizes."""
    # The first entry or policy creates the row, so without a row every amount is zero.
    row = session.execute(_BALANCE, {"organization_id": str(organization_id)}).one_or_none()
    if row is None:
        return Balance(
            organization_id=organization_id,
            balance=0,
            held=0,
            available=0,
            policy=Policy.ACTIVE,
            suspended_by=(),
            overdraft=0,
            spending_limit=None,
            spent=0,
            version=0,
            storage_overdue_since=None,
            storage_refused_from=None,
        )
    return _balance(row)


def read_balance(session: Session, *, actor: Actor, organization_id: UUID) -> Balance:
    """Return an organization's balance to an administrator. Raises PermissionDenied, ResourceNotFound."""
    authorize_administrative_reading(session, actor, Permission.CREDIT_READ, organization_id)
    return get_balance(session, organization_id)


# `available` is computed by the same SQL function that decides holds, so that the two cannot differ.
_BALANCE = text(
    """
SELECT b.organization_id, b.posted AS balance, b.held, credits_available(b) AS available, b.policy, b.overdraft,
    array_remove(ARRAY[
        CASE WHEN b.suspended_by_owner_at IS NOT NULL THEN 'owner' END,
        CASE WHEN b.suspended_by_operator_at IS NOT NULL THEN 'operator' END
    ], NULL) AS suspended_by,
    b.spending_limit, CASE WHEN b.spent_month = credits_month() THEN b.spent ELSE 0 END AS spent, b.version,
    b.storage_overdue_since, b.storage_refused_from
FROM credit_balances b WHERE b.organization_id = CAST(:organization_id AS uuid)
"""
)


def _balance(row: Row[Any]) -> Balance:
    suspended_by = tuple(Suspender(kind) for kind in row.suspended_by)
    return Balance(**{**row._asdict(), "policy": Policy(row.policy), "suspended_by": suspended_by})
