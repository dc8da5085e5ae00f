"""The command group `credits`: balances, top-ups, policies, statements, storage charges, and reconciliation."""

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
    limit_option,
    organization_option,
    page_options,
    print_json,
    show,
)
from shared.credits import balances, holds, ledger, policies, reconciliation, statements
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

# The names of fields whose values are amounts in µcr, in all resources of credits.
_AMOUNTS = (
    *("amount", "balance_after", "balance", "held", "available", "overdraft", "spending_limit", "spent"),
    *("price", "cost", "opening", "closing", "hold"),
)
_reference = click.option(
    "--reference",
    required=True,
    help="Unique name of the entry; repeating it adds nothing, so retries are safe.",
)


class Credits(click.ParamType[int, str]):
    """A parameter type that converts a decimal amount of credits to µcr. It also accepts negative amounts."""

    name = "credits"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the amount in µcr. If the text is not a decimal number, the command fails."""
        # Return an int unchanged: click requires that a type accepts its own results.
        if isinstance(value, int):
            return value
        try:
            return parse_signed_credits(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


credits = click.Group("credits", help="Manage the credits of organizations.")  # noqa: A001 (the command's name)


@credits.command("show", help="Get an organization's balance, holds and credit policy.")
@organization_option
def show_credits(organization_id: UUID) -> None:
    with administration() as session:
        found = balances.read_balance(session, actor=OPERATOR, organization_id=organization_id)
    _show(found)


@credits.command("top-up", help="Add credits to an organization, once per reference.")
@organization_option
@click.option("--amount", type=Credits(), required=True, help="Credits to add, for example 12.5.")
@_reference
def top_up(organization_id: UUID, amount: int, reference: str) -> None:
    with administration() as session:
        entered = ledger.top_up(
            session, organization_id=organization_id, amount=amount, reference=reference, actor=OPERATOR
        )
    _show(entered.entry, replayed=entered.is_replayed)


@credits.command("adjust", help="Add a correcting entry, positive or negative, once per reference.")
@organization_option
@click.option("--amount", type=Credits(), required=True, help="Credits to add; negative to subtract.")
@_reference
def adjust(organization_id: UUID, amount: int, reference: str) -> None:
    with administration() as session:
        entered = ledger.adjust(
            session, organization_id=organization_id, amount=amount, reference=reference, actor=OPERATOR
        )
    _show(entered.entry, replayed=entered.is_replayed)


@credits.command("set-policy", help="Replace an organization's credit policy.")
@organization_option
@click.option(
    "--policy",
    type=click.Choice([policy.value for policy in balances.Policy]),
    required=True,
    help="Rule that decides whether, and up to which limit, it may spend.",
)
@click.option(
    "--overdraft", type=Credits(), help="Credits that the balance may go below zero; unchanged by default."
)
@click.option("--spending-limit", type=Credits(), help="Credits per calendar month; for policy `limit`.")
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


@credits.command("suspend", help="Suspend an organization's spending; its owners cannot resume it.")
@organization_option
def suspend_spending(organization_id: UUID) -> None:
    with administration() as session:
        balance = policies.suspend_spending(session, actor=OPERATOR, organization_id=organization_id)
    _show(balance)


@credits.command("resume", help="Resume an organization's spending; a suspension by its own owner remains.")
@organization_option
def resume_spending(organization_id: UUID) -> None:
    with administration() as session:
        balance = policies.resume_spending(session, actor=OPERATOR, organization_id=organization_id)
    _show(balance)


@credits.command("list-entries", help="List an organization's ledger entries, newest first.")
@organization_option
@page_options
def list_entries(organization_id: UUID, cursor: str | None, limit: int) -> None:
    # Parse the cursor as a number: it is the version of an entry. The cursors of other lists are ids.
    before = int(cursor) if cursor and cursor.isdecimal() else None
    with administration() as session:
        page = ledger.list_entries(
            session, actor=OPERATOR, organization_id=organization_id, cursor=before, limit=limit
        )
    print_json({"entries": [_document(entry) for entry in page.items], "nextCursor": page.next_cursor})


@credits.command("list-holds", help="List an organization's open holds, newest first.")
@organization_option
@page_options
def list_holds(organization_id: UUID, cursor: str | None, limit: int) -> None:
    with administration() as session:
        page = holds.list_holds(
            session, actor=OPERATOR, organization_id=organization_id, cursor=cursor, limit=limit
        )
    print_json({"holds": [_document(hold) for hold in page.items], "nextCursor": page.next_cursor})


def _month(_context: click.Context, _param: click.Parameter, value: datetime | None) -> date | None:
    return value.date() if value is not None else None


_MONTH = click.DateTime(formats=["%Y-%m"])


@credits.command(
    "enter-payment",
    help="Add the ledger entry of a payment event if its webhook was lost; FILE is the event's JSON.",
)
@click.option(
    "--source", metavar="NAME", required=True, help="Name of the payment source in PAYMENT_SOURCES."
)
@click.argument("event", type=click.File("rb"), metavar="FILE")
def enter_payment(source: str, event: IO[bytes]) -> None:
    with installation() as (database, settings):
        # Check the source before reading the file: a mistyped name is the most likely error, and the message lists
        # the valid names.
        if source not in settings.payment_sources:
            known = ", ".join(sorted(settings.payment_sources)) or "none"
            raise click.BadParameter(
                f"{source} is not in PAYMENT_SOURCES (known: {known})", param_hint="--source"
            )
        try:
            payload = json.load(event)
        except ValueError as error:
            raise click.BadParameter(f"is not JSON: {error}", param_hint="FILE") from error
        with database.transaction() as session:
            result = payment_entries.enter_payment_event(
                session, name=source, source=settings.payment_sources[source], event=payload
            )
    print_json({"result": result.value})


@credits.command("list-statements", help="List an organization's monthly statements, newest first.")
@organization_option
@click.option("--before", type=_MONTH, callback=_month, help="`nextCursor` of the previous page.")
@limit_option(statements.DEFAULT_MONTHS)
def list_statements(organization_id: UUID, before: date | None, limit: int) -> None:
    with administration() as session:
        page = statements.list_statements(
            session, actor=OPERATOR, organization_id=organization_id, before=before, limit=limit
        )
    print_json({"statements": [_of_month(at) for at in page.items], "nextCursor": page.next_cursor})


@credits.command("show-statement", help="Get an organization's statement of a calendar month (UTC).")
@organization_option
@click.option("--month", type=_MONTH, callback=_month, required=True, help="Month, for example 2026-11.")
def show_statement(organization_id: UUID, month: date) -> None:
    with administration() as session:
        statement = statements.read_statement(
            session, actor=OPERATOR, organization_id=organization_id, month=month
        )
    lines = [_document(line) for line in statement.lines]
    print_json(_of_month(statement) | {"lines": lines})


def _of_month(resource: statements.Balances | statements.Statement) -> dict[str, Any]:
    return _document(resource) | {"month": f"{resource.month:%Y-%m}"}


@credits.command("list-storage", help="List an organization's stored bytes and storage charges by day.")
@organization_option
@click.option("--window", type=choice(Window), help="Time span until now; 30d unless --month is given.")
@click.option("--month", type=_MONTH, callback=_month, help="Calendar month in UTC, for example 2026-11.")
@click.option(
    "--group-by",
    type=choice(StorageDimension),
    multiple=True,
    help="Also sum by this dimension; repeatable.",
)
def list_storage(
    organization_id: UUID, window: str | None, month: date | None, group_by: tuple[str, ...]
) -> None:
    criteria = StorageCriteria(
        window=Window(window) if window else None,
        month=month,
        # Remove repeated dimensions. fromkeys() keeps the order of the command line.
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
    help="Update today's metered storage from the stored files, after `credits prove` found a wrong measurement.",
)
def recount_storage() -> None:
    with installation() as (database, _), database.transaction() as session:
        counted = storage_check.count_stored(session)
    print_json({"organizations": counted})


@credits.command(
    "prove",
    help="Check that ledger entries, balances, usage, rollups and storage agree; print differences and exit with 1.",
)
def reconcile() -> None:
    with installation() as (database, _):
        with database.transaction() as session:
            found = reconciliation.reconcile(session)
        # Run this check outside of the transaction: the check reads versions in many batches, and an open snapshot
        # would hold back vacuum for that time.
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
    # The formatted amounts replace the fields with the same names, whose values are in µcr.
    show(resource, **_format_amounts(resource), **more)


def _document(resource: Any) -> dict[str, Any]:
    return document(dataclasses.replace(resource, **_format_amounts(resource)))


def _format_amounts(resource: Any) -> dict[str, Any]:
    """Return the resource's amounts as decimal credits."""
    amounts = {name: getattr(resource, name) for name in _AMOUNTS if hasattr(resource, name)}
    return {name: None if amount is None else format_credits(amount) for name, amount in amounts.items()}
