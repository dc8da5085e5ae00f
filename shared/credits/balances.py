"""Read what an organization has, and set what it may do with it.

The policy is `active` (down to zero, or below it by the overdraft), `limit` (as active, and at most so much charged in
a calendar month, UTC) or `suspended` (nothing). It governs holds only: what was dispatched is charged whatever it
says.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Row, case, literal, text
from sqlalchemy.dialects.postgresql import insert

from shared.credits.amounts import MAX_AMOUNT, format_credits
from shared.credits.errors import BillingOrganizationRequired
from shared.credits.tables import credit_balances
from shared.database import Session
from shared.errors import FieldError, PermissionDenied, ValidationFailed
from shared.identity.audit import record
from shared.identity.authorization import Actor, authorize_administration
from shared.identity.callers import Caller
from shared.identity.existence import require_organization
from shared.identity.permissions import Permission


class Policy(StrEnum):
    """What an organization may do with its credits."""

    ACTIVE = "active"
    LIMIT = "limit"
    SUSPENDED = "suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """An organization's credits, in µcr.

    `available` is what a call may hold now; it is below zero while calls and storage have cost more than there was.
    `spent` is what was charged in this month. Since `storage_overdue_since` storage could not be paid, and from
    `storage_refused_from` on nothing more is stored; both are None for an organization that owes nothing.
    """

    organization_id: UUID
    balance: int
    held: int
    available: int
    policy: Policy
    overdraft: int
    spending_limit: int | None
    spent: int
    version: int
    storage_overdue_since: datetime | None
    storage_refused_from: datetime | None


def get_balance(session: Session, organization_id: UUID) -> Balance:
    """Read a balance; an organization that never had credits has none of everything."""
    row = session.execute(_BALANCE, {"organization_id": str(organization_id)}).one_or_none()
    if row is None:
        return Balance(
            organization_id=organization_id,
            balance=0,
            held=0,
            available=0,
            policy=Policy.ACTIVE,
            overdraft=0,
            spending_limit=None,
            spent=0,
            version=0,
            storage_overdue_since=None,
            storage_refused_from=None,
        )
    return _balance(row)


def read_balance(session: Session, *, by: Actor, organization_id: UUID) -> Balance:
    """Read an organization's balance as one who administers it."""
    authorize_administration(by, Permission.CREDIT_READ, organization_id)
    require_organization(session, organization_id)
    return get_balance(session, organization_id)


def set_policy(
    session: Session,
    *,
    organization_id: UUID,
    policy: Policy,
    overdraft: int = 0,
    spending_limit: int | None = None,
    by: Actor,
) -> Balance:
    """Replace an organization's policy as a whole; amounts in µcr. Raise ValidationFailed if it makes no sense."""
    authorize_administration(by, Permission.CREDIT_MANAGE, organization_id)
    require_organization(session, organization_id)
    _check_policy(policy, overdraft, spending_limit)
    values = {"policy": policy.value, "overdraft": overdraft, "spending_limit": spending_limit}
    statement = insert(credit_balances).values(organization_id=organization_id, **values)
    changes = values | _owing_after(overdraft)
    session.execute(statement.on_conflict_do_update(index_elements=["organization_id"], set_=changes))
    record(
        session,
        by=by,
        action="credit_policy.set",
        resource_kind="organization",
        resource_id=organization_id,
        organization_id=organization_id,
        policy=policy.value,
        overdraft=format_credits(overdraft),
        spending_limit=None if spending_limit is None else format_credits(spending_limit),
    )
    return get_balance(session, organization_id)


def authorize_reading(caller: Caller, permission: Permission) -> UUID:
    """Give the organization a caller acts in, if they may read its credits or usage."""
    organization_id = caller.organization_id
    if organization_id is None:
        raise BillingOrganizationRequired
    if permission not in caller.permissions_on(organization_id=organization_id):
        raise PermissionDenied(permission=permission)
    return organization_id


def _owing_after(overdraft: int) -> dict[str, ColumnElement[Any]]:
    """Forget what is owed for storage where an overdraft covers it, as `credits_post` does where a top-up does."""
    is_uncovered = credit_balances.c.posted + literal(overdraft, BigInteger) < 0
    columns = (credit_balances.c.storage_overdue_since, credit_balances.c.storage_refused_from)
    return {column.name: case((is_uncovered, column), else_=None) for column in columns}


# What is available is worked out by the very function that decides holds.
_BALANCE = text(
    """
SELECT b.organization_id, b.posted AS balance, b.held, credits_available(b) AS available, b.policy, b.overdraft,
    b.spending_limit, CASE WHEN b.spent_month = credits_month() THEN b.spent ELSE 0 END AS spent, b.version,
    b.storage_overdue_since, b.storage_refused_from
FROM credit_balances b WHERE b.organization_id = CAST(:organization_id AS uuid)
"""
)


def _check_policy(policy: Policy, overdraft: int, spending_limit: int | None) -> None:
    most = f"must be from 0 to {format_credits(MAX_AMOUNT)} credits"
    wrong: list[FieldError] = []
    if not 0 <= overdraft <= MAX_AMOUNT:
        wrong.append(FieldError(location="body", name="overdraft", message=most))
    if spending_limit is not None and not 0 <= spending_limit <= MAX_AMOUNT:
        wrong.append(FieldError(location="body", name="spendingLimit", message=most))
    if (policy is Policy.LIMIT) != (spending_limit is not None):
        message = "goes with the policy `limit`, and with no other"
        wrong.append(FieldError(location="body", name="spendingLimit", message=message))
    if wrong:
        raise ValidationFailed(errors=wrong)


def _balance(row: Row[Any]) -> Balance:
    return Balance(**{**row._asdict(), "policy": Policy(row.policy)})
