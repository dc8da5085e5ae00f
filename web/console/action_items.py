"""Put what needs mending on the first page: what is wrong, and one remedy each, a page or at once."""

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
from web.console.reasons import find_reason
from web.console.spend_series import BurnRate

MAXIMUM_ACTION_ITEMS = 20
LOW_DAYS = 7
LEDGER = "/console/ledger"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionItem:
    """Something that somebody should do something about, and the page where; with `acts` a form does it at once."""

    kind: str
    title: str
    text: str
    remedy: str
    path: str
    acts: str | None = None
    act: str = ""


def list_failure_items(context: PageContext, session: Session) -> list[ActionItem]:
    """Find what failed, as far as the visitor may mend it."""
    organization_id = context.organization_id
    found: list[ActionItem] = []
    if context.holds(Permission.DEPLOYMENT_MANAGE):
        found += [_endpoint_item(at) for at in list_dead_endpoints(session, organization_id)]
    if context.holds(Permission.DISTRIBUTION_MANAGE):
        for at in list_troubled_distributions(session, organization_id):
            found += _distribution_items(at)
    if context.holds(Permission.TASK_READ):
        found += [_agent_item(at) for at in list_failing_agents(session, organization_id)]
    return found


def list_credit_items(balance: Balance | None, burning: BurnRate | None) -> list[ActionItem]:
    """Say what keeps, or will soon keep, calls and uploads from being paid."""
    if balance is None:
        return []
    found = []
    if balance.policy is Policy.SUSPENDED:
        who = " and ".join(f"the {at}" for at in balance.suspended_by) or "its policy"
        text = f"No call starts until it is resumed; suspended by {who}."
        found.append(_link_item("bad", "Spending is suspended", text, "To the ledger", LEDGER))
    if balance.storage_refused_from is not None:
        text = "Nothing new is stored until credits are added; what is stored stays."
        found.append(_link_item("bad", "Storage is not paid", text, "Top up", "/console/top-up"))
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
    """Say which budgets are spent, or nearly."""
    found = []
    for budget in near:
        label = labels.get(str(budget.subject_id))
        name = label.name if label else str(budget.subject_id)
        share = 100 * (budget.spent + budget.held) // budget.amount
        unit = "" if budget.unit is Unit.CREDITS else f" of {budget.unit}"
        title = f"“{name}” has used {share} % of its budget{unit}"
        kind = "bad" if budget.remaining == 0 else "wait"
        text = (
            f"It begins anew {budget.resets_at:%-d %b, %H:%M} UTC"
            if budget.resets_at
            else "It never begins anew"
        )
        found.append(_link_item(kind, title, text, "To the budgets", "/console/keys#budgets"))
    return found


def _endpoint_item(at: DeadEndpoint) -> ActionItem:
    page = f"/console/agents/{at.deployment_id}"
    return ActionItem(
        kind="bad",
        title=f"The endpoint of “{at.name}” does not answer as it should",
        text=f"{at.problem}: messages to this agent fail.",
        remedy="To the agent",
        path=page,
        acts="Check again",
        act=f"{page}/endpoint/check",
    )


def _distribution_items(at: TroubledDistribution) -> list[ActionItem]:
    page = f"/console/distributions/{at.distribution_id}"
    reason = find_reason(at.code)
    why = f"{reason.meaning} {reason.remedy}" if reason else at.code or ""
    found = []
    for count, word, state, kind in (
        (at.failed, "failed", "Failed", "bad"),
        (at.held, "wait for somebody", "Held", "wait"),
    ):
        if count:
            title = f"Imports of “{at.name}” {word}: {_bounded(count)}"
            found.append(_link_item(kind, title, why, "See and retry", f"{page}?state={state}#imports"))
    if at.dead:
        found.append(
            ActionItem(
                kind="bad",
                title=f"Notifications of “{at.name}” could not be delivered: {_bounded(at.dead)}",
                text="Its endpoint did not take them, however often they were sent.",
                remedy="See why",
                path=f"{page}?notifications=Dead#notifications",
                acts="Resend",
                act=f"{page}/resend",
            )
        )
    return found


def _agent_item(at: FailingAgent) -> ActionItem:
    title = f"Tasks of “{at.name}” failed in the last day: {_bounded(at.failed)}"
    return _link_item("bad", title, "The newest says why.", "See the newest", f"/console/tasks/{at.task_id}")


def _bounded(count: int) -> str:
    return f"{count} or more" if count >= MAX_COUNTED else str(count)


def _link_item(kind: str, title: str, text: str, remedy: str, path: str) -> ActionItem:
    return ActionItem(kind=kind, title=title, text=text, remedy=remedy, path=path)
