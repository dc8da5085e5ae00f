"""The pages of the ledger: entries, held credits, storage by day, statements, and spending limits."""

from datetime import date
from typing import Annotated

from flask import Response
from pydantic import Field

from shared.credits.balances import Policy, read_balance
from shared.credits.holds import list_holds
from shared.credits.ledger import list_entries, top_up
from shared.credits.policies import can_resume_spending, resume_spending, set_policy, suspend_spending
from shared.credits.statements import list_statements, read_statement
from shared.credits.storage_billing.storage_reports import StorageCriteria, read_storage_usage
from shared.identity.access.authorization import holds_administrative_permission
from shared.identity.access.permissions import Permission
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import read_amount, read_optional_amount, require
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.queries import ROWS, CursorQuery
from web.http.wire_types import Count, RequestModel

routes = ConsoleRoutes("ledger")

PAGE = "/console/ledger"


class EntryQuery(RequestModel):
    """The position in the list of entries: the page shows entries with lower versions."""

    cursor: Annotated[Count | None, Field()] = None


@routes.page(
    "/ledger",
    title="Ledger",
    permission=Permission.CREDIT_READ,
    navigation=Group.USAGE,
    tab="Entries",
    summary="List the entries of the ledger, newest first",
    query=EntryQuery,
)
def show_ledger(context: PageContext) -> Response:
    actor, organization_id = context.actor, context.organization_id
    cursor = context.call.query.cursor
    with context.services.database.transaction() as session:
        balance = read_balance(session, actor=actor, organization_id=organization_id)
        entries = list_entries(
            session, actor=actor, organization_id=organization_id, cursor=cursor, limit=ROWS
        )
        statements = list_statements(session, actor=actor, organization_id=organization_id)
    # The newest entry contains the balance after it. The first page compares this value with the stored
    # balance.
    newest = entries.items[0] if entries.items and cursor is None else None
    return context.render(
        "ledger.html",
        balance=balance,
        entries=entries,
        statements=statements.items,
        adds_up=newest is None or newest.balance_after == balance.balance,
        newest=newest,
        may_grant=_may_grant(context),
        may_manage=context.holds(Permission.CREDIT_MANAGE),
        is_own_suspension=can_resume_spending(actor, balance),
    )


@routes.page(
    "/ledger/holds",
    title="Held credits",
    permission=Permission.CREDIT_READ,
    navigation="/ledger",
    tab="Held",
    summary="List the credits that open calls reserve",
    query=CursorQuery,
)
def show_holds(context: PageContext) -> Response:
    with context.services.database.autocommit() as session:
        holds = list_holds(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            **context.call.query.position,
        )
        labels = context.labels(
            session, [at.principal_id or at.identity_id or at.user_id for at in holds.items]
        )
    return context.render("holds.html", holds=holds, labels=labels)


@routes.page(
    "/ledger/storage",
    title="Storage",
    permission=Permission.CREDIT_READ,
    navigation="/ledger",
    tab="Storage",
    summary="Show what was stored day by day, and its cost",
)
def show_storage(context: PageContext) -> Response:
    with context.services.database.autocommit() as session:
        report = read_storage_usage(
            session, actor=context.actor, organization_id=context.organization_id, criteria=StorageCriteria()
        )
    return context.render("storage.html", report=report)


@routes.page(
    "/ledger/<month:month>",
    title="Statement",
    permission=Permission.CREDIT_READ,
    navigation="/ledger",
    summary="Show the statement of a month",
)
def show_statement(context: PageContext, month: date) -> Response:
    with context.services.database.autocommit() as session:
        statement = read_statement(
            session, actor=context.actor, organization_id=context.organization_id, month=month
        )
    return context.render("statement.html", statement=statement)


@routes.page(
    "/top-up",
    title="Top up",
    permission=Permission.CREDIT_READ,
    navigation=None,
    summary="Show how to add credits; for operators",
)
def show_top_up(context: PageContext) -> Response:
    with context.services.database.autocommit() as session:
        balance = read_balance(session, actor=context.actor, organization_id=context.organization_id)
    # Members may open the page too: the page tells them that an operator adds credits.
    return context.render("top_up.html", balance=balance, may_grant=_may_grant(context))


@routes.action(
    "/top-up",
    summary="Add credits; for operators",
    rest="top_up_credits",
    command="credits top-up",
    step_up="/console/top-up",
)
def add_credits(context: PageContext) -> Response:
    amount = read_amount(context.form, "amount")
    with context.services.database.transaction() as session:
        top_up(
            session,
            organization_id=context.organization_id,
            amount=amount,
            # The reference is unique in the ledger, so a form that is sent twice adds credits only once.
            reference=require(context.form, "reference"),
            actor=context.actor,
        )
    return go_to(PAGE)


@routes.action(
    "/spending/policy",
    summary="Set or lift the limit of a month's spending",
    rest="set_credit_policy",
    command="credits set-policy",
    step_up=PAGE,
)
def set_limit(context: PageContext) -> Response:
    limit = read_optional_amount(context.form, "limit")
    with context.services.database.transaction() as session:
        set_policy(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            policy=Policy.ACTIVE if limit is None else Policy.LIMIT,
            spending_limit=limit,
        )
    return go_to(PAGE)


routes.action_calling(
    "/spending/suspend",
    suspend_spending,
    return_to=PAGE,
    of_organization=True,
    summary="Suspend the organization's spending",
    rest="suspend_spending",
    command="credits suspend",
    step_up=PAGE,
)


routes.action_calling(
    "/spending/resume",
    resume_spending,
    return_to=PAGE,
    of_organization=True,
    summary="Resume the organization's spending",
    rest="resume_spending",
    command="credits resume",
    step_up=PAGE,
)


def _may_grant(context: PageContext) -> bool:
    return holds_administrative_permission(context.actor, Permission.CREDIT_GRANT, context.organization_id)
