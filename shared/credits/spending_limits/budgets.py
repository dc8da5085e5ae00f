"""Budgets: limits for a key, user, identity or deployment, in credits, or in requests or tokens per minute.

The hold decides whether a budget allows a call (`shared/credits/sql/credits_refusal.sql`). Every change locks the
balance's row first, as holds and settlements do, so that no budget changes during them. `limits` in that row counts
the budgets and model allowlists. If it is 0, the hold skips the check. A budget counts only calls that begin after
its creation.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, Select, Uuid, case, delete, func, literal, select, union_all, update
from sqlalchemy.dialects.postgresql import insert as upsert

from shared.credits.amounts import MAX_AMOUNT, MICRO, format_credits
from shared.credits.policies import lock_balance
from shared.credits.tables import budgets, credit_balances
from shared.db.database import Session
from shared.errors import DomainError, Kind, invalid_field
from shared.identity.access.authorization import (
    Actor,
    authorize_administration,
    holds_administrative_permission,
)
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.errors import AlreadyExists, ResourceNotFound
from shared.identity.lookups import get_one, require_deployment, require_identity, require_member
from shared.identity.tables import api_keys
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate

MAX_LIMITS = 10_000
"""The largest number of budgets and model allowlists of one organization."""


class SubjectKind(StrEnum):
    """The kind of subject of a budget. The budget of an identity counts the calls that it executes or receives."""

    API_KEY = "api_key"
    USER = "user"
    IDENTITY = "identity"
    DEPLOYMENT = "deployment"


class Unit(StrEnum):
    """The unit of a budget."""

    CREDITS = "credits"
    REQUESTS = "requests"
    TOKENS = "tokens"


class Period(StrEnum):
    """The period after which a budget resets, in UTC; weeks begin on Monday."""

    ONCE = "once"
    MINUTE = "minute"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class TooManyLimits(DomainError):
    """The organization has reached its limit of budgets and model allowlists. Delete one first."""

    code = "too_many_budgets"
    kind = Kind.CONFLICT


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """A budget with the amounts spent and held in the current period: in µcr for credits, otherwise a count."""

    id: UUID
    organization_id: UUID
    subject_kind: SubjectKind
    subject_id: UUID
    model: str | None
    unit: Unit
    period: Period
    amount: int
    spent: int
    held: int
    resets_at: datetime | None
    created_at: datetime

    @property
    def remaining(self) -> int:
        """The amount that new calls may still hold."""
        return max(0, self.amount - self.spent - self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBudget:
    """A budget to create. `amount` is in millionths of the unit, because the API parses all amounts as credits."""

    subject_kind: SubjectKind
    subject_id: UUID
    unit: Unit
    period: Period
    amount: int
    model: str | None = None


def create_budget(session: Session, *, actor: Actor, organization_id: UUID, new: NewBudget) -> Budget:
    """Create a budget.

    Raises PermissionDenied, ValidationFailed, AlreadyExists, TooManyLimits, and ResourceNotFound if the subject
    does not belong to the organization.
    """
    authorize_administration(actor, Permission.CREDIT_MANAGE, organization_id)
    if (new.unit is Unit.CREDITS) is (new.period is Period.MINUTE):
        raise invalid_field("period", "is `minute` for requests and tokens, and longer for credits")
    amount = _counted(new.unit, new.amount)
    lock_balance(session, organization_id)
    require_subject(session, organization_id, new.subject_kind, new.subject_id)
    values = {
        "id": new_id(),
        "organization_id": organization_id,
        "subject_kind": new.subject_kind.value,
        "subject_id": new.subject_id,
        "model": new.model,
        "unit": new.unit.value,
        "period": new.period.value,
        "amount": amount,
        "starts_at": func.credits_period_start(new.period.value, func.now()),
    }
    # The unique constraint treats null models as equal, so it also finds a second budget for all models.
    created = session.execute(upsert(budgets).values(values).on_conflict_do_nothing().returning(budgets.c.id))
    budget_id = created.scalar_one_or_none()
    if budget_id is None:
        raise AlreadyExists(
            "A budget with this subject, unit, period and model already exists. Change its amount instead."
        )
    count_limits(session, organization_id, 1)
    budget = _get(session, organization_id, budget_id)
    _record(session, actor, "budget.created", budget)
    return budget


def get_budget(session: Session, *, actor: Actor, organization_id: UUID, budget_id: UUID) -> Budget:
    """Return a budget: with `credit.read` any budget, otherwise one of the acting user or of the user's keys."""
    return get_one(session, _visible(actor, organization_id).where(budgets.c.id == budget_id), _budget)


def list_budgets(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[Budget]:
    """Return a page of budgets, oldest first.

    With `credit.read` the list contains all budgets of the organization, otherwise those of the acting user and of
    the user's keys.
    """
    return paginate(session, _visible(actor, organization_id), ascending(budgets.c.id), _budget, **page)


def change_budget(
    session: Session, *, actor: Actor, organization_id: UUID, budget_id: UUID, amount: int
) -> Budget:
    """Change a budget's amount. The spent and held amounts stay unchanged, so a lower budget may refuse all calls."""
    authorize_administration(actor, Permission.CREDIT_MANAGE, organization_id)
    lock_balance(session, organization_id)
    before = _get(session, organization_id, budget_id)
    counted = _counted(before.unit, amount)
    if counted == before.amount:
        return before
    # Compute the reached share for the new amount: after an increase, an alert is sent again when a share is
    # reached.
    reached = func.least(
        budgets.c.alerted_share, func.credits_share(budgets.c.unit, budgets.c.spent, counted)
    )
    is_this = budgets.c.id == budget_id
    session.execute(update(budgets).where(is_this).values(amount=counted, alerted_share=reached))
    count_limits(session, organization_id, 0)
    budget = _get(session, organization_id, budget_id)
    _record(session, actor, "budget.changed", budget, amount_before=shown_amount(before.unit, before.amount))
    return budget


def delete_budget(session: Session, *, actor: Actor, organization_id: UUID, budget_id: UUID) -> None:
    """Delete a budget. Open calls that count in it continue and settle without it."""
    authorize_administration(actor, Permission.CREDIT_MANAGE, organization_id)
    lock_balance(session, organization_id)
    budget = _get(session, organization_id, budget_id)
    session.execute(delete(budgets).where(budgets.c.id == budget_id))
    count_limits(session, organization_id, -1)
    _record(session, actor, "budget.deleted", budget)


def list_covering_budgets(session: Session, organization_id: UUID, subjects: list[UUID]) -> list[Budget]:
    """Return the budgets of these subjects, oldest first. The caller authorizes."""
    of_subjects = budgets.c.organization_id == organization_id, budgets.c.subject_id.in_(subjects)
    return [_budget(row) for row in session.execute(_SELECT.where(*of_subjects).order_by(budgets.c.id))]


def shown_amount(unit: Unit, amount: int) -> str:
    """Return an amount as text: decimal credits, or a count."""
    return format_credits(amount) if unit is Unit.CREDITS else str(amount)


def count_limits(session: Session, organization_id: UUID, change: int) -> None:
    """Add `change` to the organization's number of limits. Raises TooManyLimits."""
    # Update the row even if `change` is 0: the update makes a hold that waits for the row read the budgets again.
    limits = credit_balances.c.limits
    of_organization = credit_balances.c.organization_id == organization_id
    changed = update(credit_balances).where(of_organization).values(limits=limits + change)
    if session.execute(changed.returning(limits)).scalar_one() > MAX_LIMITS and change > 0:
        raise TooManyLimits


def require_subject(session: Session, organization_id: UUID, kind: SubjectKind, subject_id: UUID) -> None:
    """Raise ResourceNotFound unless a subject belongs to the organization."""
    match kind:
        case SubjectKind.USER:
            require_member(session, organization_id, subject_id)
        case SubjectKind.IDENTITY:
            require_identity(session, organization_id, subject_id)
        case SubjectKind.DEPLOYMENT:
            require_deployment(session, organization_id, subject_id)
        case SubjectKind.API_KEY:
            key = get_one(session, select(api_keys).where(api_keys.c.id == subject_id), lambda row: row)
            # An unbound key acts in every organization of its user.
            if key.organization_id is None:
                require_member(session, organization_id, key.user_id)
            elif key.organization_id != organization_id:
                raise ResourceNotFound


def _visible(actor: Actor, organization_id: UUID) -> Select[Any]:
    """Return a select of the budgets that the actor may read. Raises ResourceNotFound if the actor has no right."""
    statement = _SELECT.where(budgets.c.organization_id == organization_id)
    if holds_administrative_permission(actor, Permission.CREDIT_READ, organization_id):
        return statement
    if not actor.caller.permissions_on(organization_id=organization_id):
        raise ResourceNotFound
    own = union_all(
        select(literal(actor.user_id, Uuid)), select(api_keys.c.id).where(api_keys.c.user_id == actor.user_id)
    )
    return statement.where(budgets.c.subject_id.in_(own))


def _counted(unit: Unit, amount: int) -> int:
    """Convert an amount from millionths to the unit: µcr, or whole requests or tokens. Raises ValidationFailed."""
    if not 0 <= amount <= MAX_AMOUNT:
        raise invalid_field("amount", f"must be from 0 to {format_credits(MAX_AMOUNT)}")
    if unit is Unit.CREDITS:
        return amount
    count, fraction = divmod(amount, MICRO)
    if fraction:
        raise invalid_field("amount", f"must be a whole number of {unit.value}")
    return count


def _record(session: Session, actor: Actor, action: str, budget: Budget, **details: Any) -> None:
    record(
        session,
        actor,
        action,
        budget.id,
        organization_id=budget.organization_id,
        subject_kind=budget.subject_kind.value,
        subject_id=budget.subject_id,
        unit=budget.unit.value,
        period=budget.period.value,
        model=budget.model,
        amount=shown_amount(budget.unit, budget.amount),
        **details,
    )


def _get(session: Session, organization_id: UUID, budget_id: UUID) -> Budget:
    statement = _SELECT.where(budgets.c.id == budget_id, budgets.c.organization_id == organization_id)
    return get_one(session, statement, _budget)


def _budget(row: Row[Any]) -> Budget:
    kinds = {
        "subject_kind": SubjectKind(row.subject_kind),
        "unit": Unit(row.unit),
        "period": Period(row.period),
    }
    return Budget(**{**row._asdict(), **kinds})


# Only the next hold resets a period that is over, so reads count the amounts of such a period as 0. `starts_at` may
# lie after `now()` if the hold's transaction began after the reading one.
_moment = func.greatest(func.now(), budgets.c.starts_at)
_is_current = budgets.c.starts_at == func.credits_period_start(budgets.c.period, _moment)
_SELECT = select(
    *(budgets.c[name] for name in ("id", "organization_id", "subject_kind", "subject_id", "model", "unit")),
    budgets.c.period,
    budgets.c.amount,
    case((_is_current, budgets.c.spent), else_=0).label("spent"),
    case((_is_current, budgets.c.held), else_=0).label("held"),
    func.credits_period_end(budgets.c.period, _moment).label("resets_at"),
    budgets.c.created_at,
)
