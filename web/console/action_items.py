"""The action items of the overview: a problem, and the page or the button that resolves it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from shared.credits.balances import Balance, Policy
from shared.credits.spending_limits.budgets import Budget, Unit
from shared.db.database import Session
from shared.identity.access.permissions import Permission
from shared.identity.directory.labels import Label
from shared.operations.action_items import (
    MAX_COUNTED,
    DeadEndpoint,
    FailingAgent,
    TroubledDistribution,
    list_dead_endpoints,
    list_failing_agents,
    list_troubled_distributions,
)
from web.console.format import day
from web.console.page_context import PageContext
from web.console.spend_series import BurnRate
from web.openapi.problems import find_problem

# The list stands above the charts of the overview. Limit it, so that it does not push the charts off the
# page.
MAXIMUM_ACTION_ITEMS = 20
LOW_DAYS = 7  # If the credits last for fewer days, the overview has an action item.
LEDGER = "/console/ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionItem:
    """A problem, with the page that shows it.

    If the item has a `button`, a form resolves the problem by a POST to `action`.
    """

    kind: str
    title: str
    text: str
    link: str
    path: str
    button: str | None = None
    action: str = ""


def list_failure_items(context: PageContext, session: Session) -> list[ActionItem]:
    """Return an item for each failure that the user has the permission to resolve."""
    organization_id = context.organization_id
    found: list[ActionItem] = []
    if context.holds(Permission.DEPLOYMENT_MANAGE):
        found += [_endpoint_item(at) for at in list_dead_endpoints(session, organization_id)]
    if context.holds(Permission.DISTRIBUTION_MANAGE):
        for at in list_troubled_distributions(session, organization_id):
            found += _distribution_items(at)
    # The permission to read tasks is enough: the item has no button, and only links to the failed task.
    if context.holds(Permission.TASK_READ):
        found += [_agent_item(at) for at in list_failing_agents(session, organization_id)]
    return found


def list_credit_items(balance: Balance | None, burning: BurnRate | None) -> list[ActionItem]:
    """Return items for calls or uploads that are refused for lack of credits, or soon will be."""
    if balance is None:
        return []
    found = []
    # Add this item besides those of the balance: a suspension refuses calls even with credits, and a top-up
    # does not end it.
    if balance.policy is Policy.SUSPENDED:
        who = " and ".join(f"the {at}" for at in balance.suspended_by) or "an owner"
        text = f"Model calls are refused until {who} resumes it."
        found.append(_link_item("bad", "Spending is suspended", text, "Open ledger", LEDGER))
    # Show at most one of these three items: the same top-up resolves each, and the first is the most urgent.
    if balance.storage_refused_from is not None:
        text = "Uploads are refused until credits are added. Stored files stay."
        found.append(_link_item("bad", "Storage is not paid for", text, "Top up", "/console/top-up"))
    elif balance.available <= 0:
        text = "Calls that cost anything are refused."
        found.append(_link_item("bad", "No credits are left", text, "Top up", "/console/top-up"))
    elif burning is not None and burning.days_left is not None and burning.days_left < LOW_DAYS:
        left = "less than a day" if burning.days_left == 0 else f"{burning.days_left} days"
        ends = f" They end on {day(burning.ends_on)} at the rate of the last week." if burning.ends_on else ""
        found.append(
            _link_item(
                "wait", f"Credits last {left}", f"Then calls are refused.{ends}", "Top up", "/console/top-up"
            )
        )
    return found


def list_budget_items(near: Sequence[Budget], labels: Mapping[str, Label]) -> list[ActionItem]:
    """Return an item for each budget that is used up or nearly used up."""
    found = []
    for budget in near:
        label = labels.get(str(budget.subject_id))
        name = label.name if label else str(budget.subject_id)
        # Round down, so that 100 % means used up. overview() leaves out budgets of amount 0, which have no
        # share.
        share = 100 * (budget.spent + budget.held) // budget.amount
        unit = "" if budget.unit is Unit.CREDITS else f" of {budget.unit}"
        title = f"“{name}” has used {share} % of its budget{unit}"
        kind = "bad" if budget.remaining == 0 else "wait"
        text = (
            f"It resets on {budget.resets_at:%-d %b, %H:%M} UTC." if budget.resets_at else "It never resets."
        )
        found.append(_link_item(kind, title, text, "Open budgets", "/console/keys#budgets"))
    return found


def _endpoint_item(at: DeadEndpoint) -> ActionItem:
    page = f"/console/agents/{at.deployment_id}"
    return ActionItem(
        kind="bad",
        title=f"The endpoint of “{at.name}” fails",
        text=f"{at.problem}. Messages to this agent fail.",
        link="Open agent",
        path=page,
        button="Check again",
        action=f"{page}/endpoint/check",
    )


def _distribution_items(at: TroubledDistribution) -> list[ActionItem]:
    page = f"/console/distributions/{at.distribution_id}"
    problem = find_problem(at.code)
    why = f"{problem.meaning} {problem.remedy}" if problem else at.code or ""
    found = []
    for count, word, state, kind in (
        (at.failed, "failed", "Failed", "bad"),
        (at.held, "are paused", "Held", "wait"),
    ):
        if count:
            title = f"Imports of “{at.name}” {word}: {_bounded(count)}"
            found.append(_link_item(kind, title, why, "Open imports", f"{page}?state={state}#imports"))
    if at.dead:
        found.append(
            ActionItem(
                kind="bad",
                title=f"Notifications of “{at.name}” could not be delivered: {_bounded(at.dead)}",
                text="Its endpoint refused every attempt.",
                link="Open channel",
                path=f"{page}?notifications=Dead#notifications",
                button="Resend",
                action=f"{page}/resend",
            )
        )
    return found


def _agent_item(at: FailingAgent) -> ActionItem:
    title = f"Tasks of “{at.name}” failed in the last day: {_bounded(at.failed)}"
    return _link_item(
        "bad", title, "The newest task shows the error.", "Open task", f"/console/tasks/{at.task_id}"
    )


def _bounded(count: int) -> str:
    # The query stops counting at MAX_COUNTED: a large backlog must not slow down every view of the overview.
    return f"{count} or more" if count >= MAX_COUNTED else str(count)


def _link_item(kind: str, title: str, text: str, link: str, path: str) -> ActionItem:
    return ActionItem(kind=kind, title=title, text=text, link=link, path=path)
