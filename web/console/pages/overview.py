"""The overview: balance, burn rate, action items, and spend by model and by principal."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from flask import Response

from shared.credits.amounts import MICRO
from shared.credits.authorization import UsageScope, authorize_usage
from shared.credits.balances import Balance, get_balance
from shared.credits.spending_limits.budgets import Budget, list_budgets
from shared.credits.storage_billing.storage_reports import StorageCriteria, storage_usage
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_reports import UsageCriteria, UsageReport, Window, scoped_usage
from shared.db.database import Session
from shared.identity.access.permissions import Permission
from shared.pagination import MAX_LIMIT
from web.console.action_items import (
    MAXIMUM_ACTION_ITEMS,
    list_budget_items,
    list_credit_items,
    list_failure_items,
)
from web.console.charts import meter, stacked_bars
from web.console.declarations import ConsoleRoutes
from web.console.format import credits as in_credits
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.queries import WindowQuery
from web.console.spend_series import (
    BurnRate,
    SpendSeries,
    build_spend_series,
    estimate_burn_rate,
    start_of_day,
)

routes = ConsoleRoutes("overview")

BURN_DAYS = 7
_NEAR = 0.8  # A budget is an action item when this share of its amount is used.
_INTERVALS = {
    Window.DAY: (Interval.HOUR, timedelta(hours=1), "%H:00"),
    Window.WEEK: (Interval.DAY, timedelta(days=1), "%-d %b"),
    Window.MONTH: (Interval.DAY, timedelta(days=1), "%-d %b"),
}


@routes.page(
    "",
    title="Overview",
    permission=None,
    navigation=Group.OVERVIEW,
    summary="Show the balance, the spend and the action items",
    query=WindowQuery,
)
def overview(context: PageContext) -> Response:
    organization_id, scope = context.organization_id, authorize_usage(context.caller)
    window = Window(context.call.query.window)
    interval, step, date_form = _INTERVALS[window]
    with context.services.database.autocommit() as session:
        balance = get_balance(session, organization_id) if context.holds(Permission.CREDIT_READ) else None
        figures = _figures(context, session, scope, balance)
    # htmx requests only the figures, so skip the queries for the rest of the page.
    if "HX-Request" in context.call.http.headers:
        return context.render("overview_figures.html", **figures)
    with context.services.database.autocommit() as session:
        by_model = scoped_usage(
            session, scope, UsageCriteria(window=window, interval=interval, group_by=(Dimension.MODEL,))
        )
        by_principal = scoped_usage(
            session, scope, UsageCriteria(window=window, group_by=(Dimension.PRINCIPAL,))
        )
        ids = [group.keys[0] for group in by_principal.groups[:10]]
        near = _list_nearly_used_budgets(context, session)
        labels = context.labels(session, [*ids, *(str(at.subject_id) for at in near)])
        failures = list_failure_items(context, session)
    spent = build_spend_series(by_model.groups, by_model.starts_at, by_model.ends_at, step)
    return context.render(
        "overview.html",
        window=window.value,
        report=by_model,
        models=_by_model(by_model),
        principals=by_principal.groups[:10],
        labels=labels,
        spent=spent,
        chart=_chart(spent, date_form),
        steps=[f"{at:{date_form}}" for at in spent.steps],
        action_items=[
            *list_credit_items(balance, figures["burn"]),
            *list_budget_items(near, labels),
            *failures,
        ][:MAXIMUM_ACTION_ITEMS],
        is_own=scope.user_id is not None,
        **figures,
    )


def _list_nearly_used_budgets(context: PageContext, session: Session) -> Sequence[Budget]:
    listed = list_budgets(
        session, actor=context.actor, organization_id=context.organization_id, limit=MAX_LIMIT
    )
    # Leave out a budget of amount 0: it forbids all spending on purpose, so it is no warning.
    return [at for at in listed.items if at.amount and at.spent + at.held >= _NEAR * at.amount]


def _figures(
    context: PageContext, session: Session, scope: UsageScope, balance: Balance | None
) -> Mapping[str, Any]:
    """Return the figures of the overview. An open page requests them every two seconds."""
    today = start_of_day(context.now)
    # Leave out today: a day that has just begun would lower the average.
    whole_days = UsageCriteria(starts_at=today - timedelta(days=BURN_DAYS), ends_at=today)
    cost = scoped_usage(session, scope, whole_days).total.cost
    # Storage is billed to the organization, so it is not in the costs of one member.
    if scope.user_id is None:
        cost += storage_usage(session, scope.organization_id, StorageCriteria(window=Window.WEEK)).cost
    burning: BurnRate | None = (
        estimate_burn_rate(cost, BURN_DAYS, balance.available, context.now) if balance else None
    )
    limited = balance is not None and balance.spending_limit
    month = (
        meter(
            balance.spent / MICRO,
            (balance.spending_limit or 0) / MICRO,
            held=balance.held / MICRO,
            label=f"{in_credits(balance.spent)} of {in_credits(balance.spending_limit or 0)} credits this month",
        )
        if balance is not None and limited
        else None
    )
    return {"balance": balance, "burn": burning, "month": month}


def _by_model(report: UsageReport) -> Sequence[tuple[str, int, int, int]]:
    """Return the ten models with the highest cost.

    The row of a model has its calls, tokens and cost, summed over all steps.
    """
    sums: dict[str, tuple[int, int, int]] = {}
    for group in report.groups:
        calls, tokens, cost = sums.get(group.keys[0] or "?", (0, 0, 0))
        at = group.sum
        tokens += at.total_tokens
        sums[group.keys[0] or "?"] = (calls + at.invocations, tokens, cost + at.cost)
    return sorted(((name, *at) for name, at in sums.items()), key=lambda at: (-at[3], -at[1], at[0]))[:10]


def _chart(spent: SpendSeries, date_form: str) -> object:
    days = [f"{at:{date_form}}" for at in spent.steps]
    label = f"Credits spent by model, {days[0]} to {days[-1]}; the table below has the same figures"
    return stacked_bars(days, spent.series, label=label, unit="cr")
