"""The pages of budgets: create a budget, change its amount, delete it. The page of keys lists the budgets."""

from dataclasses import dataclass
from typing import Self
from uuid import UUID

from flask import Response
from markupsafe import Markup

from shared.credits.amounts import MICRO
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
)
from shared.identity.access.permissions import Permission
from web.console.charts import meter
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import Form, choose, invalid_field, read_amount, read_id
from web.console.page_context import PageContext

routes = ConsoleRoutes("budgets")

KEYS = "/console/keys"
LIST = f"{KEYS}#budgets"
# A budget of a minute limits the rate of calls. It is left out: people set it by command, where they also
# choose its unit.
PERIODS = tuple(period.value for period in Period if period is not Period.MINUTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetRow:
    """A budget, with the bar that shows its use."""

    budget: Budget
    bar: Markup

    @classmethod
    def of(cls, budget: Budget) -> Self:
        """Return the row of a budget."""
        # Credits are stored in µcr, so scale them. Tokens and requests are stored as counts.
        scale = MICRO if budget.unit is Unit.CREDITS else 1
        spent, amount = budget.spent / scale, budget.amount / scale
        label = f"{spent:,.2f} of {amount:,.2f} {budget.unit}"
        return cls(budget=budget, bar=meter(spent, amount, held=budget.held / scale, label=label))


@routes.action(
    "/budgets",
    summary="Create a budget",
    rest="create_budget",
    command="budgets create",
    step_up=LIST,
)
def add_budget(context: PageContext) -> Response:
    # One list of the form offers keys and the user, so each choice contains the kind and the id.
    kind, _, subject = context.form.get("subject", "").partition(":")
    if kind not in {at.value for at in SubjectKind}:
        raise invalid_field("subject", f"must be {' or '.join(SubjectKind)}, a colon and an id")
    new = NewBudget(
        subject_kind=SubjectKind(kind),
        subject_id=read_id({"subject": subject}, "subject"),
        unit=Unit.CREDITS,
        period=read_period(context.form),
        amount=read_amount(context.form, "amount"),
    )
    with context.services.database.transaction() as session:
        create_budget(session, actor=context.actor, organization_id=context.organization_id, new=new)
    return go_to(LIST)


@routes.page(
    "/budgets/<id:budget_id>",
    title="Budget",
    permission=None,
    navigation="/keys",
    summary="Show a budget, to change or delete it",
)
def show_budget(context: PageContext, budget_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        budget = get_budget(
            session, actor=context.actor, organization_id=context.organization_id, budget_id=budget_id
        )
        labels = context.labels(session, [budget.subject_id])
    return context.render(
        "budget.html",
        budget=budget,
        bar=BudgetRow.of(budget).bar,
        labels=labels,
        may_limit=context.holds(Permission.CREDIT_MANAGE),
    )


@routes.action(
    "/budgets/<id:budget_id>",
    summary="Update a budget's amount",
    rest="change_budget",
    command="budgets set-amount",
    step_up=KEYS,
)
def set_budget(context: PageContext, budget_id: UUID) -> Response:
    amount = read_amount(context.form, "amount")
    with context.services.database.transaction() as session:
        change_budget(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            budget_id=budget_id,
            amount=amount,
        )
    return go_to(LIST)


routes.action_calling(
    "/budgets/<id:budget_id>/delete",
    delete_budget,
    return_to=LIST,
    of_organization=True,
    summary="Delete a budget",
    rest="delete_budget",
    command="budgets delete",
    step_up=KEYS,
)


def read_period(form: Form) -> Period:
    """Return the period that the form chooses. The default is a month. Raises ValidationFailed."""
    return Period(choose({"period": Period.MONTH.value, **form}, "period", PERIODS))
