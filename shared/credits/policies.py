"""Change an organization's credit policy: the monthly spending limit, the overdraft, and suspensions.

A policy is `active`, `limit` (a maximum of charges per calendar month, UTC) or `suspended`. A policy decides about
new holds only: a dispatched call is always charged. Only operators grant overdrafts. Owners and operators suspend
spending separately, and each side lifts only its own suspension. Spending is suspended while either suspension is
in force.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ColumnElement, Row, case, func, literal, select, update
from sqlalchemy.dialects.postgresql import insert

from shared.credits.amounts import MAX_AMOUNT, format_credits
from shared.credits.balances import Balance, Policy, Suspender, get_balance
from shared.credits.tables import credit_balances
from shared.db.database import Session
from shared.errors import FieldError, ValidationFailed
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.lookups import require_organization

_SUSPENDED_AT = {
    Suspender.OWNER: credit_balances.c.suspended_by_owner_at,
    Suspender.OPERATOR: credit_balances.c.suspended_by_operator_at,
}


def set_policy(
    session: Session,
    *,
    organization_id: UUID,
    policy: Policy,
    overdraft: int | None = None,
    spending_limit: int | None = None,
    actor: Actor,
) -> Balance:
    """Replace an organization's policy; amounts in µcr.

    The policy `suspended` sets the suspension of the actor's side and keeps the limit; any other policy lifts that
    suspension. If `overdraft` is None, the current overdraft is kept; only operators may change the overdraft.
    Raises PermissionDenied, ResourceNotFound, ValidationFailed.
    """
    authorize_administration(actor, Permission.CREDIT_MANAGE, organization_id)
    _check_policy(policy, overdraft, spending_limit)
    present = lock_balance(session, organization_id)
    # Refuse only a different overdraft: owners may send the one that they read back unchanged.
    if overdraft is not None and overdraft != present.overdraft:
        authorize_administration(actor, Permission.CREDIT_GRANT, organization_id)
    lent = present.overdraft if overdraft is None else overdraft
    is_suspension = policy is Policy.SUSPENDED
    limit = present.spending_limit if is_suspension else spending_limit
    changes = {"overdraft": lent, "spending_limit": limit, **_owing_after(lent)}
    is_same_side = is_suspension == _is_suspended_by(actor, present)
    if not is_same_side or (lent, limit) != (present.overdraft, present.spending_limit):
        record(
            session,
            actor,
            "credit_policy.set",
            organization_id,
            resource_kind="organization",
            organization_id=organization_id,
            policy=policy.value,
            overdraft=format_credits(lent),
            spending_limit=None if spending_limit is None else format_credits(spending_limit),
        )
    _suspend(session, actor, present, is_on=is_suspension, spending_limit=limit, changes=changes)
    return get_balance(session, organization_id)


def suspend_spending(session: Session, *, actor: Actor, organization_id: UUID) -> Balance:
    """Suspend an organization's spending. No call starts until the same side resumes it."""
    authorize_administration(actor, Permission.CREDIT_MANAGE, organization_id)
    present = lock_balance(session, organization_id)
    _suspend(session, actor, present, is_on=True, spending_limit=present.spending_limit)
    return get_balance(session, organization_id)


def resume_spending(session: Session, *, actor: Actor, organization_id: UUID) -> Balance:
    """Lift the suspension of the actor's side; the other side's suspension stays in force."""
    authorize_administration(actor, Permission.CREDIT_MANAGE, organization_id)
    present = lock_balance(session, organization_id)
    _suspend(session, actor, present, is_on=False, spending_limit=present.spending_limit)
    return get_balance(session, organization_id)


def can_resume_spending(actor: Actor, balance: Balance) -> bool:
    """Return whether the actor's side has suspended spending, so that `resume_spending` lifts a suspension."""
    return _side_of(actor) in balance.suspended_by


def lock_balance(session: Session, organization_id: UUID) -> Row[Any]:
    """Return the organization's balance row, locked; create it if there is none. Raises ResourceNotFound."""
    # Every change of a policy, budget or allowlist, and every hold and settlement, takes the balance's lock first.
    require_organization(session, organization_id)
    session.execute(insert(credit_balances).values(organization_id=organization_id).on_conflict_do_nothing())
    statement = select(credit_balances).where(credit_balances.c.organization_id == organization_id)
    return session.execute(statement.with_for_update()).one()


def _suspend(
    session: Session,
    actor: Actor,
    present: Row[Any],
    *,
    is_on: bool,
    spending_limit: int | None,
    changes: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Set or lift the suspension of the actor's side, together with `changes`, and store the resulting policy."""
    side = _side_of(actor)
    own = _SUSPENDED_AT[side]
    is_suspended = is_on or any(
        getattr(present, column.name) is not None for at, column in _SUSPENDED_AT.items() if at is not side
    )
    values = {
        **changes,
        # A repeated suspension keeps the time of the first one.
        own.name: func.coalesce(own, func.now()) if is_on else None,
        "policy": _policy(spending_limit, is_suspended=is_suspended).value,
    }
    is_this = credit_balances.c.organization_id == present.organization_id
    session.execute(update(credit_balances).where(is_this).values(values))
    if is_on != _is_suspended_by(actor, present):
        record(
            session,
            actor,
            "credits.suspended" if is_on else "credits.resumed",
            present.organization_id,
            resource_kind="organization",
            organization_id=present.organization_id,
            suspended_by=side.value,
        )


def _side_of(actor: Actor) -> Suspender:
    return Suspender.OPERATOR if actor.caller.is_operator else Suspender.OWNER


def _is_suspended_by(actor: Actor, present: Row[Any]) -> bool:
    """Return whether the actor's side has suspended spending."""
    return getattr(present, _SUSPENDED_AT[_side_of(actor)].name) is not None


def _policy(spending_limit: int | None, *, is_suspended: bool) -> Policy:
    if is_suspended:
        return Policy.SUSPENDED
    return Policy.ACTIVE if spending_limit is None else Policy.LIMIT


def _owing_after(overdraft: int) -> dict[str, ColumnElement[Any]]:
    """Return the columns of unpaid storage, cleared if the overdraft covers the debt, as `credits_post` clears them."""
    is_uncovered = credit_balances.c.posted + literal(overdraft, BigInteger) < 0
    columns = (credit_balances.c.storage_overdue_since, credit_balances.c.storage_refused_from)
    return {column.name: case((is_uncovered, column), else_=None) for column in columns}


def _check_policy(policy: Policy, overdraft: int | None, spending_limit: int | None) -> None:
    most = f"must be from 0 to {format_credits(MAX_AMOUNT)} credits"
    wrong: list[FieldError] = []
    if overdraft is not None and not 0 <= overdraft <= MAX_AMOUNT:
        wrong.append(FieldError(location="body", name="overdraft", message=most))
    if spending_limit is not None and not 0 <= spending_limit <= MAX_AMOUNT:
        wrong.append(FieldError(location="body", name="spendingLimit", message=most))
    if (policy is Policy.LIMIT) != (spending_limit is not None):
        message = "goes with the policy `limit`, and with no other"
        wrong.append(FieldError(location="body", name="spendingLimit", message=message))
    if wrong:
        raise ValidationFailed(errors=wrong)
