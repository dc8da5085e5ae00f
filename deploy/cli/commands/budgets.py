"""The command group `budgets`: spending limits of keys, users, identities and deployments, and model lists of keys."""

from typing import Any
from uuid import UUID

import click

from deploy.cli.command_context import (
    administration,
    choice,
    document,
    organization_option,
    page_options,
    print_json,
    required_id,
)
from deploy.cli.commands.credits import Credits
from shared.credits.spending_limits import budgets as domain
from shared.credits.spending_limits import key_model_allowlist
from shared.credits.spending_limits.budgets import Budget, Period, SubjectKind, Unit, shown_amount
from shared.identity.access.authorization import OPERATOR

_budget = click.argument("budget_id", type=click.UUID, metavar="ID")
_key = required_id("key")
# Parse every amount as credits: only the database knows the unit of an existing budget. The domain then converts the
# amount to requests or tokens.
_amount = click.option(
    "--amount", type=Credits(), required=True, help="Limit per period, in the budget's unit."
)

budgets = click.Group("budgets", help="Manage budgets of keys, users, identities and deployments.")


@budgets.command("create", help="Create a budget.")
@organization_option
@click.option("--subject-kind", type=choice(SubjectKind), required=True, help="Kind of the limited spender.")
@click.option("--subject", "subject_id", type=click.UUID, required=True, help="Id of the limited spender.")
@click.option(
    "--unit", type=choice(Unit), default=Unit.CREDITS.value, show_default=True, help="Unit of the amount."
)
@click.option(
    "--period",
    type=choice(Period),
    required=True,
    help="When the budget resets, in UTC; `once` never resets.",
)
@_amount
@click.option("--model", help="Count only calls of this model; all models by default.")
def create_budget(
    organization_id: UUID, subject_kind: str, subject_id: UUID, unit: str, period: str, **options: Any
) -> None:
    new = domain.NewBudget(
        subject_kind=SubjectKind(subject_kind),
        subject_id=subject_id,
        unit=Unit(unit),
        period=Period(period),
        **options,
    )
    with administration() as session:
        made = domain.create_budget(session, actor=OPERATOR, organization_id=organization_id, new=new)
    print_json(_document(made))


@budgets.command("list", help="List an organization's budgets, oldest first.")
@organization_option
@page_options
def list_budgets(organization_id: UUID, cursor: str | None, limit: int) -> None:
    with administration() as session:
        page = domain.list_budgets(
            session, actor=OPERATOR, organization_id=organization_id, cursor=cursor, limit=limit
        )
    print_json({"budgets": [_document(at) for at in page.items], "nextCursor": page.next_cursor})


@budgets.command("show", help="Get a budget.")
@organization_option
@_budget
def show_budget(organization_id: UUID, budget_id: UUID) -> None:
    with administration() as session:
        found = domain.get_budget(
            session, actor=OPERATOR, organization_id=organization_id, budget_id=budget_id
        )
    print_json(_document(found))


@budgets.command("set-amount", help="Update a budget's amount.")
@organization_option
@_budget
@_amount
def set_amount(organization_id: UUID, budget_id: UUID, amount: int) -> None:
    with administration() as session:
        changed = domain.change_budget(
            session, actor=OPERATOR, organization_id=organization_id, budget_id=budget_id, amount=amount
        )
    print_json(_document(changed))


@budgets.command("delete", help="Delete a budget; running calls that it counted continue.")
@organization_option
@_budget
def delete_budget(organization_id: UUID, budget_id: UUID) -> None:
    with administration() as session:
        domain.delete_budget(session, actor=OPERATOR, organization_id=organization_id, budget_id=budget_id)


@budgets.command("set-models", help="Set the list of models that an API key may call.")
@organization_option
@_key
@click.option(
    "--model", "models", multiple=True, required=True, help="Id of a model that the key may call; repeatable."
)
def set_models(organization_id: UUID, key_id: UUID, models: tuple[str, ...]) -> None:
    with administration() as session:
        named = key_model_allowlist.set_key_models(
            session, actor=OPERATOR, organization_id=organization_id, key_id=key_id, models=models
        )
    print_json({"models": list(named)})


@budgets.command("show-models", help="Get the list of models that an API key may call.")
@organization_option
@_key
def show_models(organization_id: UUID, key_id: UUID) -> None:
    with administration() as session:
        models = key_model_allowlist.get_key_models(
            session, actor=OPERATOR, organization_id=organization_id, key_id=key_id
        )
    print_json({"models": list(models)})


@budgets.command(
    "remove-models", help="Remove an API key's list of models; the key may then call all models."
)
@organization_option
@_key
def remove_models(organization_id: UUID, key_id: UUID) -> None:
    with administration() as session:
        key_model_allowlist.remove_key_models(
            session, actor=OPERATOR, organization_id=organization_id, key_id=key_id
        )


def _document(budget: Budget) -> dict[str, Any]:
    amounts = {
        name: shown_amount(budget.unit, getattr(budget, name))
        for name in ("amount", "spent", "held", "remaining")
    }
    return document(budget) | amounts
