"""API keys and budgets: created once in sight, limited, revoked."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from flask import Response

from shared.credits.amounts import MICRO
from shared.credits.authorization import UsageScope, authorize_usage
from shared.credits.spending_limits import key_model_allowlist
from shared.credits.spending_limits.budgets import (
    Budget,
    NewBudget,
    Period,
    SubjectKind,
    Unit,
    change_budget,
    create_budget,
    delete_budget,
    get_budget,
    list_budgets,
)
from shared.credits.usage.usage_query import Dimension
from shared.credits.usage.usage_reports import UsageCriteria, Window, usage
from shared.db.database import Session
from shared.errors import PermissionDenied
from shared.identity.access.permissions import Permission
from shared.identity.credentials import api_keys
from shared.identity.credentials.api_keys import ApiKey
from shared.pagination import MAX_LIMIT
from web.console.charts import meter
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import Form, read_amount, read_id, require, wrong
from web.console.page_context import PageContext
from web.console.queries import CursorQuery

routes = ConsoleRoutes("keys")

PAGE = "/console/keys"
_DAYS = {"90": timedelta(days=90), "365": timedelta(days=365), "never": None}
_MODEL = "model:"
_PERIODS = tuple(period.value for period in Period if period is not Period.MINUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limited:
    """A budget, and its bar."""

    budget: Budget
    bar: object


@routes.page("/keys", summary="List API keys and budgets", query=CursorQuery)
def show_keys(context: PageContext) -> Response:
    organization_id, scope = context.organization_id, authorize_usage(context.caller)
    with context.services.database.autocommit() as session:
        bound = (
            api_keys.list_organization_api_keys(
                session, actor=context.actor, organization_id=organization_id, **context.call.query.position
            )
            if context.holds(Permission.CREDENTIAL_MANAGE)
            else None
        )
        own = api_keys.list_api_keys(session, actor=context.actor, user_id=context.user_id, limit=MAX_LIMIT)
        keys = _all(own.items, bound.items if bound else ())
        budgets = list_budgets(session, actor=context.actor, organization_id=organization_id, limit=MAX_LIMIT)
        labels = context.labels(
            session, [*(at.subject_id for at in budgets.items), *(at.user_id for at in keys)]
        )
        spent = _spent(session, scope)
    limits = [Limited(budget=at, bar=_bar(at)) for at in budgets.items]
    return context.render(
        "keys.html",
        keys=[at for at in keys if at.organization_id in (None, organization_id)],
        next_cursor=bound.next_cursor if bound else None,
        budgets=limits,
        by_key={str(at.budget.subject_id): at for at in limits if at.budget.unit is Unit.CREDITS},
        labels=labels,
        spent=spent,
        periods=_PERIODS,
        may_limit=context.holds(Permission.CREDIT_MANAGE),
        user_id=context.user_id,
    )


@routes.action(
    "/keys",
    summary="Create an API key",
    rest="issue_api_key",
    command="api-keys issue",
    step_up=f"{PAGE}#new",
)
def issue_key(context: PageContext) -> Response:
    form, organization_id = context.form, context.organization_id
    name, limit = require(form, "name"), _amount(form, "limit", is_needed=False)
    if form.get("ends", "90") not in _DAYS or form.get("bound", "yes") not in ("yes", "no"):
        raise wrong("ends", "must be one of those that the form has")
    life = _DAYS[form.get("ends", "90")]
    bound_to = organization_id if form.get("bound", "yes") == "yes" else None
    with context.services.database.transaction() as session:
        issued = api_keys.issue_api_key(
            session,
            actor=context.actor,
            user_id=context.user_id,
            organization_id=bound_to,
            name=name,
            expires_at=context.now + life if life else None,
        )
        budget = _limit(session, context, issued.key.id, limit) if limit is not None else None
    return context.render("key_issued.html", key=issued.key, secret=issued.secret.value, budget=budget)


@routes.page("/keys/<id:key_id>/models", summary="Show the models that a key may call")
def show_key_models(context: PageContext, key_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        key = api_keys.get_api_key(session, actor=context.actor, key_id=key_id)
        chosen = key_model_allowlist.find_key_models(session, context.organization_id, key_id)
    offered = [entry.id for entry in context.services.models.catalog.current().entries]
    return context.render(
        "key_models.html",
        key=key,
        chosen=chosen,
        models=sorted({*offered, *(chosen or ())}),
        may_limit=context.holds(Permission.CREDIT_MANAGE),
    )


@routes.action(
    "/keys/<id:key_id>/models",
    summary="Set the only models that a key may call",
    rest="put_key_models",
    command="budgets set-models",
    step_up=PAGE,
)
def set_models(context: PageContext, key_id: UUID) -> Response:
    chosen = tuple(name.removeprefix(_MODEL) for name in context.form if name.startswith(_MODEL))
    actor, organization_id = context.actor, context.organization_id
    with context.services.database.transaction() as session:
        key_model_allowlist.set_key_models(
            session, actor=actor, organization_id=organization_id, key_id=key_id, models=chosen
        )
    return go_to(f"{PAGE}/{key_id}/models")


@routes.action(
    "/keys/<id:key_id>/models/remove",
    summary="Remove the list of models of a key",
    rest="remove_key_models",
    command="budgets remove-models",
    step_up=PAGE,
)
def remove_models(context: PageContext, key_id: UUID) -> Response:
    actor, organization_id = context.actor, context.organization_id
    with context.services.database.transaction() as session:
        api_keys.get_api_key(session, actor=actor, key_id=key_id)
        key_model_allowlist.remove_key_models(
            session, actor=actor, organization_id=organization_id, key_id=key_id
        )
    return go_to(f"{PAGE}/{key_id}/models")


@routes.page("/keys/<id:key_id>/revoke", summary="Show what revoking a key does")
def confirm_revocation(context: PageContext, key_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        key = api_keys.get_api_key(session, actor=context.actor, key_id=key_id)
        labels = context.labels(session, [key.user_id])
    return context.render("key_revoke.html", key=key, labels=labels)


@routes.action(
    "/keys/<id:key_id>/revoke",
    summary="Revoke an API key",
    rest="revoke_api_key",
    command="api-keys revoke",
    step_up=PAGE,
)
def revoke_key(context: PageContext, key_id: UUID) -> Response:
    with context.services.database.transaction() as session:
        key = api_keys.get_api_key(session, actor=context.actor, key_id=key_id)
        if context.form.get("name", "").strip() != key.name:
            raise wrong("name", "is not the name of this key")
        api_keys.revoke_api_key(session, actor=context.actor, key_id=key_id)
    return go_to(PAGE)


@routes.action(
    "/budgets",
    summary="Create a budget",
    rest="create_budget",
    command="budgets create",
    step_up=f"{PAGE}#budgets",
)
def add_budget(context: PageContext) -> Response:
    kind, _, subject = context.form.get("subject", "").partition(":")
    if kind not in {at.value for at in SubjectKind}:
        raise wrong("subject", "must be one of those that the form has")
    amount = _amount(context.form, "amount")
    new = NewBudget(
        subject_kind=SubjectKind(kind),
        subject_id=read_id({"subject": subject}, "subject"),
        unit=Unit.CREDITS,
        period=_period(context.form),
        amount=amount or 0,
    )
    with context.services.database.transaction() as session:
        create_budget(session, actor=context.actor, organization_id=context.organization_id, new=new)
    return go_to(f"{PAGE}#budgets")


@routes.page("/budgets/<id:budget_id>", summary="Show a budget, to change or delete it")
def show_budget(context: PageContext, budget_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        budget = get_budget(
            session, actor=context.actor, organization_id=context.organization_id, budget_id=budget_id
        )
        labels = context.labels(session, [budget.subject_id])
    return context.render(
        "budget.html",
        budget=budget,
        bar=_bar(budget),
        labels=labels,
        may_limit=context.holds(Permission.CREDIT_MANAGE),
    )


@routes.action(
    "/budgets/<id:budget_id>",
    summary="Update a budget's amount",
    rest="change_budget",
    command="budgets set-amount",
    step_up=PAGE,
)
def set_budget(context: PageContext, budget_id: UUID) -> Response:
    amount = _amount(context.form, "amount")
    with context.services.database.transaction() as session:
        change_budget(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            budget_id=budget_id,
            amount=amount or 0,
        )
    return go_to(f"{PAGE}#budgets")


routes.acts(
    "/budgets/<id:budget_id>/delete",
    delete_budget,
    back=f"{PAGE}#budgets",
    of_organization=True,
    summary="Delete a budget",
    rest="delete_budget",
    command="budgets delete",
    step_up=PAGE,
)


def _all(own: Sequence[ApiKey], bound: Sequence[ApiKey]) -> list[ApiKey]:
    """Put one's own and those of the organization together: live ones first, then by age."""
    keys = {key.id: key for key in (*own, *bound)}
    return sorted(keys.values(), key=lambda key: (key.revoked_at is not None, key.id))


def _spent(session: Session, scope: UsageScope) -> dict[str, int]:
    criteria = UsageCriteria(window=Window.MONTH, group_by=(Dimension.KEY,))
    report = usage(session, scope.organization_id, criteria, user_id=scope.user_id)
    return {group.keys[0]: group.sum.cost for group in report.groups if group.keys[0]}


def _limit(session: Session, context: PageContext, key_id: UUID, amount: int) -> Budget:
    if not context.holds(Permission.CREDIT_MANAGE):
        raise PermissionDenied(permission=Permission.CREDIT_MANAGE)
    new = NewBudget(
        subject_kind=SubjectKind.API_KEY,
        subject_id=key_id,
        unit=Unit.CREDITS,
        period=_period(context.form),
        amount=amount,
    )
    return create_budget(session, actor=context.actor, organization_id=context.organization_id, new=new)


def _period(form: Form) -> Period:
    sent = form.get("period", Period.MONTH.value)
    if sent not in _PERIODS:
        raise wrong("period", f"must be one of {', '.join(_PERIODS)}")
    return Period(sent)


def _amount(form: Form, name: str, *, is_needed: bool = True) -> int | None:
    if not is_needed and not form.get(name, "").strip():
        return None
    return read_amount(form, name)


def _bar(budget: Budget) -> object:
    scale = MICRO if budget.unit is Unit.CREDITS else 1
    spent, amount = budget.spent / scale, budget.amount / scale
    label = f"{spent:,.2f} of {amount:,.2f} {budget.unit}"
    return meter(spent, amount, held=budget.held / scale, label=label)
