"""The pages of API keys: create a key, choose the models that it may call, revoke it.

A new key is shown once.
"""

from collections.abc import Sequence
from datetime import timedelta
from uuid import UUID

from flask import Response

from shared.credits.authorization import UsageScope, authorize_usage
from shared.credits.spending_limits import key_model_allowlist
from shared.credits.spending_limits.budgets import (
    Budget,
    NewBudget,
    SubjectKind,
    Unit,
    create_budget,
    list_budgets,
)
from shared.credits.usage.usage_query import Dimension
from shared.credits.usage.usage_reports import UsageCriteria, Window, scoped_usage
from shared.db.database import Session
from shared.errors import PermissionDenied
from shared.identity.access.permissions import Permission
from shared.identity.credentials import api_keys
from shared.identity.credentials.api_keys import ApiKey
from shared.pagination import MAX_LIMIT
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import choose, invalid_field, read_optional_amount, require
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.pages.budgets import PERIODS, BudgetRow, read_period
from web.console.queries import CursorQuery

routes = ConsoleRoutes("keys")

PAGE = "/console/keys"
# choose() uses the first as default, so a key without expiry must be chosen.
_LIFETIMES = {"90": timedelta(days=90), "365": timedelta(days=365), "never": None}
# Use a field for each model, because read_form() refuses a field that occurs twice.
_MODEL_FIELD = "model:"


@routes.page(
    "/keys",
    title="Keys and budgets",
    permission=None,
    navigation=Group.USAGE,
    summary="List API keys and budgets",
    query=CursorQuery,
)
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
        # The user's own keys are not paged: the cursor of the page belongs to the organization's list.
        own = api_keys.list_api_keys(session, actor=context.actor, user_id=context.user_id, limit=MAX_LIMIT)
        keys = _merge(own.items, bound.items if bound else ())
        budgets = list_budgets(session, actor=context.actor, organization_id=organization_id, limit=MAX_LIMIT)
        labels = context.labels(
            session, [*(at.subject_id for at in budgets.items), *(at.user_id for at in keys)]
        )
        spent = _spent(session, scope)
    limits = [BudgetRow.of(at) for at in budgets.items]
    return context.render(
        "keys.html",
        # Leave out own keys that are bound to another organization, because they spend nothing in this one.
        keys=[at for at in keys if at.organization_id in (None, organization_id)],
        next_cursor=bound.next_cursor if bound else None,
        budgets=limits,
        # Only a budget in credits has a bar beside its key. The table of budgets shows budgets of calls or
        # tokens.
        by_key={str(at.budget.subject_id): at for at in limits if at.budget.unit is Unit.CREDITS},
        labels=labels,
        spent=spent,
        periods=PERIODS,
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
    name, limit = require(form, "name"), read_optional_amount(form, "limit")
    lifetime = _LIFETIMES[choose(form, "ends", tuple(_LIFETIMES))]
    # Keys are bound by default: an unbound key acts in any organization that its user selects later.
    is_bound = choose(form, "bound", ("yes", "no")) == "yes"
    with context.services.database.transaction() as session:
        issued = api_keys.issue_api_key(
            session,
            actor=context.actor,
            user_id=context.user_id,
            organization_id=organization_id if is_bound else None,
            name=name,
            expires_at=context.now + lifetime if lifetime else None,
        )
        # Create the budget in the transaction of the key: a refused budget must not leave a key without a
        # limit.
        budget = _limit(session, context, issued.key.id, limit) if limit is not None else None
    return context.render("key_issued.html", key=issued.key, secret=issued.secret.value, budget=budget)


@routes.page(
    "/keys/<id:key_id>/models",
    title="Models of a key",
    permission=None,
    navigation="/keys",
    summary="Show the models that a key may call",
)
def show_key_models(context: PageContext, key_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        key = api_keys.get_api_key(session, actor=context.actor, key_id=key_id)
        chosen = key_model_allowlist.find_key_models(session, context.organization_id, key_id)
    offered = [entry.id for entry in context.services.models.catalog.current().entries]
    return context.render(
        "key_models.html",
        key=key,
        chosen=chosen,
        # List chosen models that have left the catalog too: without a box, saving the form would remove them
        # from the list.
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
    chosen = tuple(name.removeprefix(_MODEL_FIELD) for name in context.form if name.startswith(_MODEL_FIELD))
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


@routes.page(
    "/keys/<id:key_id>/revoke",
    title="Revoke a key",
    permission=None,
    navigation="/keys",
    summary="Show what revoking a key does",
)
def show_revocation(context: PageContext, key_id: UUID) -> Response:
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
        # The user must type the name: a revocation is final, and the program that uses the key stops working.
        if context.form.get("name", "").strip() != key.name:
            raise invalid_field("name", f"must be the name of this key: {key.name}")
        api_keys.revoke_api_key(session, actor=context.actor, key_id=key_id)
    return go_to(PAGE)


def _merge(own: Sequence[ApiKey], bound: Sequence[ApiKey]) -> list[ApiKey]:
    """Return the user's own keys and the organization's keys, each key once.

    Live keys come before revoked keys. Within both groups, older keys come first.
    """
    # Ids are UUIDv7, so the order of ids is the order of creation.
    keys = {key.id: key for key in (*own, *bound)}
    return sorted(keys.values(), key=lambda key: (key.revoked_at is not None, key.id))


def _spent(session: Session, scope: UsageScope) -> dict[str, int]:
    criteria = UsageCriteria(window=Window.MONTH, group_by=(Dimension.KEY,))
    report = scoped_usage(session, scope, criteria)
    return {group.keys[0]: group.sum.cost for group in report.groups if group.keys[0]}


def _limit(session: Session, context: PageContext, key_id: UUID, amount: int) -> Budget:
    if not context.holds(Permission.CREDIT_MANAGE):
        raise PermissionDenied(permission=Permission.CREDIT_MANAGE)
    new = NewBudget(
        subject_kind=SubjectKind.API_KEY,
        subject_id=key_id,
        unit=Unit.CREDITS,
        period=read_period(context.form),
        amount=amount,
    )
    return create_budget(session, actor=context.actor, organization_id=context.organization_id, new=new)
