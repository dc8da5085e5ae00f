"""Commands for credits: read, top up, adjust, set policies, see what storage costs, and prove all of it."""

import dataclasses
import json
from datetime import date, datetime
from typing import IO, Any
from uuid import UUID

import click

from deploy.cli.command_context import (
    administration,
    choice,
    document,
    installation,
    limited,
    organization,
    paged,
    print_json,
    show,
)
from shared.credits import balances, ledger, open_holds, policies, reconciliation, statements
from shared.credits.amounts import format_credits, parse_signed_credits
from shared.credits.payments import payment_entries
from shared.credits.storage_billing.storage_reports import (
    StorageCriteria,
    StorageDimension,
    read_storage_usage,
)
from shared.credits.usage.usage_reports import Window
from shared.files.metering import storage_check
from shared.identity.access.authorization import OPERATOR

_AMOUNTS = (
    "amount",
    "balance_after",
    "balance",
    "held",
    "available",
    "overdraft",
    "spending_limit",
    "spent",
    "price",
    "cost",
    "opening",
    "closing",
    "hold",
)
_reference = click.option("--reference", required=True, help="Names the entry; given again it adds nothing.")


class Credits(click.ParamType[int, str]):
    """A decimal amount of credits, as µcr; negative only where the command says so."""

    name = "credits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the amount."""
        if isinstance(value, int):
            return value
        try:
            return parse_signed_credits(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


credits = click.Group("credits", help="Manage organizations' credits.")  # noqa: A001 (the command's name)


@credits.command("show", help="Get an organization's credits and policy.")
@organization
def show_credits(organization_id: UUID) -> None:
    with administration() as session:
        found = balances.read_balance(session, actor=OPERATOR, organization_id=organization_id)
    _show(found)


@credits.command("top-up", help="Add credits, once for each reference.")
@organization
@click.option("--amount", type=Credits(), required=True, help="How many credits.")
@_reference
def top_up(organization_id: UUID, amount: int, reference: str) -> None:
    with administration() as session:
        entered = ledger.top_up(
            session, organization_id=organization_id, amount=amount, reference=reference, actor=OPERATOR
        )
    _show(entered.entry, replayed=entered.is_replayed)


@credits.command("adjust", help="Add an entry of either sign that corrects a mistake.")
@organization
@click.option("--amount", type=Credits(), required=True, help="May be negative.")
@_reference
def adjust(organization_id: UUID, amount: int, reference: str) -> None:
    with administration() as session:
        entered = ledger.adjust(
            session, organization_id=organization_id, amount=amount, reference=reference, actor=OPERATOR
        )
    _show(entered.entry, replayed=entered.is_replayed)


@credits.command("set-policy", help="Replace an organization's credit policy.")
@organization
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in balances.Policy]),
    required=True,
    help="Whether it may spend, and up to what.",
)
@click.option("--overdraft", type=Credits(), help="Stays as it is when it is left out.")
@click.option(
    "--spending-limit", type=Credits(), help="With policy `limit`: the most that is spent in a month."
)
def set_policy(organization_id: UUID, policy: str, overdraft: int | None, spending_limit: int | None) -> None:
    with administration() as session:
        balance = policies.set_policy(
            session,
            organization_id=organization_id,
            policy=balances.Policy(policy),
            overdraft=overdraft,
            spending_limit=spending_limit,
            actor=OPERATOR,
        )
    _show(balance)


@credits.command("suspend", help="Suspend an organization's spending; its owner cannot lift it.")
@organization
def suspend_spending(organization_id: UUID) -> None:
    with administration() as session:
        balance = policies.suspend_spending(session, actor=OPERATOR, organization_id=organization_id)
    _show(balance)


@credits.command("resume", help="Resume an organization's spending; a suspension by its owner stays.")
@organization
def resume_spending(organization_id: UUID) -> None:
    with administration() as session:
        balance = policies.resume_spending(session, actor=OPERATOR, organization_id=organization_id)
    _show(balance)


@credits.command("list-entries", help="List the entries of an organization's ledger, newest first.")
@organization
@paged
def list_entries(organization_id: UUID, cursor: str | None, limit: int) -> None:
    before = int(cursor) if cursor and cursor.isdecimal() else None
    with administration() as session:
        page = ledger.list_entries(
            session, actor=OPERATOR, organization_id=organization_id, cursor=before, limit=limit
        )
    print_json({"entries": [_document(entry) for entry in page.items], "nextCursor": page.next_cursor})


@credits.command("list-holds", help="List an organization's open holds, newest first.")
@organization
@paged
def list_holds(organization_id: UUID, cursor: str | None, limit: int) -> None:
    with administration() as session:
        page = open_holds.list_holds(
            session, actor=OPERATOR, organization_id=organization_id, cursor=cursor, limit=limit
        )
    print_json({"holds": [_document(hold) for hold in page.items], "nextCursor": page.next_cursor})


def _month(_context: click.Context, _param: click.Parameter, value: datetime | None) -> date | None:
    return value.date() if value is not None else None


_MONTH = click.DateTime(formats=["%Y-%m"])


@credits.command(
    "enter-payment", help="Add or take the credits of a payment event that did not arrive; FILE is its JSON."
)
@click.option("--source", metavar="NAME", required=True, help="The name in PAYMENT_SOURCES.")
@click.argument("event", type=click.File("rb"), metavar="FILE")
def enter_payment(source: str, event: IO[bytes]) -> None:
    with installation() as (database, settings):
        if source not in settings.payment_sources:
            raise click.BadParameter("is not in PAYMENT_SOURCES", param_hint="--source")
        try:
            told = json.load(event)
        except ValueError as error:
            raise click.BadParameter("is not JSON", param_hint="FILE") from error
        with database.transaction() as session:
            result = payment_entries.enter_payment_event(
                session, name=source, source=settings.payment_sources[source], event=told
            )
    print_json({"result": result.value})


@credits.command("list-statements", help="List an organization's monthly statements, newest first.")
@organization
@click.option("--before", type=_MONTH, callback=_month, help="The `nextCursor` of the page before.")
@limited(statements.DEFAULT_MONTHS)
def list_statements(organization_id: UUID, before: date | None, limit: int) -> None:
    with administration() as session:
        page = statements.list_statements(
            session, actor=OPERATOR, organization_id=organization_id, before=before, limit=limit
        )
    print_json({"statements": [_of_month(at) for at in page.items], "nextCursor": page.next_cursor})


@credits.command("show-statement", help="Get the statement of a calendar month, UTC.")
@organization
@click.option("--month", type=_MONTH, callback=_month, required=True, help="As 2026-11.")
def show_statement(organization_id: UUID, month: date) -> None:
    with administration() as session:
        statement = statements.read_statement(
            session, actor=OPERATOR, organization_id=organization_id, month=month
        )
    lines = [_document(line) for line in statement.lines]
    print_json(_of_month(statement) | {"lines": lines})


def _of_month(resource: statements.Balances | statements.Statement) -> dict[str, Any]:
    return _document(resource) | {"month": f"{resource.month:%Y-%m}"}


@credits.command("list-storage", help="List what an organization stored day by day, and what that cost.")
@organization
@click.option("--window", type=choice(Window), help="How far back: 30d, unless --month is given.")
@click.option("--month", type=_MONTH, callback=_month, help="The days of a calendar month, UTC, as 2026-11.")
@click.option(
    "--group-by",
    type=choice(StorageDimension),
    multiple=True,
    help="Break it down as well; may be given several times.",
)
def list_storage(
    organization_id: UUID, window: str | None, month: date | None, group_by: tuple[str, ...]
) -> None:
    criteria = StorageCriteria(
        window=Window(window) if window else None,
        month=month,
        group_by=tuple(dict.fromkeys(map(StorageDimension, group_by))),
    )
    with administration() as session:
        report = read_storage_usage(
            session, actor=OPERATOR, organization_id=organization_id, criteria=criteria
        )
    shown = {name: value for name, value in _document(report).items() if name != "criteria"}
    days = [_document(day) | {"day": day.day.isoformat(), "byteDays": day.byte_days} for day in report.days]
    groups = [_document(group) | {"byteDays": group.byte_days} for group in report.groups]
    print_json(
        shown
        | {"window": report.window, "month": month and f"{month:%Y-%m}", "groupBy": report.group_by}
        | {"byteDays": report.byte_days, "days": days, "groups": groups}
    )


@credits.command(
    "recount-storage",
    help="Update the present day's storage from what is stored, after `prove` found that it was measured wrongly.",
)
def recount_storage() -> None:
    with installation() as (database, _), database.transaction() as session:
        counted = storage_check.count_stored(session)
    print_json({"organizations": counted})


@credits.command(
    "prove",
    help="Check that entries, balances, usage, rollups and storage agree; print what does not, and fail if anything.",
)
def prove() -> None:
    with installation() as (database, _):
        with database.transaction() as session:
            found = reconciliation.reconcile(session)
        mismeasured = storage_check.find_storage_discrepancies(database)
    print_json(
        {
            "discrepancies": [document(at) | {"meaning": at.meaning} for at in found],
            "mismeasured": [document(at) | {"day": at.day.isoformat()} for at in mismeasured],
        }
    )
    if found or mismeasured:
        raise click.exceptions.Exit(1)


def _show(resource: Any, **more: object) -> None:
    show(resource, **_spelled(resource), **more)


def _document(resource: Any) -> dict[str, Any]:
    return document(dataclasses.replace(resource, **_spelled(resource)))


def _spelled(resource: Any) -> dict[str, Any]:
    """Give the resource's amounts as decimal credits."""
    amounts = {name: getattr(resource, name) for name in _AMOUNTS if hasattr(resource, name)}
    return {name: None if amount is None else format_credits(amount) for name, amount in amounts.items()}
