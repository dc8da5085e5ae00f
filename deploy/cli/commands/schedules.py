"""The command group `schedules`: messages that are sent to agents at fixed times."""

from typing import Any
from uuid import UUID

import click

from deploy.cli.command_context import (
    add_actions,
    administration,
    choice,
    document,
    page_options,
    print_json,
    required_id,
    show_page,
)
from deploy.cli.message_input import read_message
from shared.a2a.schedules import administration as domain
from shared.a2a.schedules.resources import MAX_CATCH_UP, Missed, Schedule, ScheduleDraft
from shared.identity.access.authorization import OPERATOR

_deployment = required_id("deployment")
# Only REST needs this option: the route's path contains the deployment. The database needs only the schedule's id.
_rest_deployment = click.option(
    "--deployment",
    "deployment_id",
    type=click.UUID,
    help="Id of the schedule's deployment; required over REST.",
)


schedules = click.Group("schedules", help="Manage the schedules of agents.")


@schedules.command("create", help="Create a schedule that sends an agent a message.")
@_deployment
@click.option("--name", required=True, help="Display name.")
@click.option("--cron", required=True, help='Cron expression of five fields, for example "0 9 * * MON-FRI".')
@click.option(
    "--time-zone",
    default="UTC",
    show_default=True,
    help="IANA time zone of the expression, for example Europe/Berlin.",
)
@click.option("--text", help="Text of the message; alternative to --message.")
@click.option("--message", help="Message as JSON: a Message of the A2A protocol, without ids and role.")
@click.option(
    "--behavior",
    "behavior_id",
    type=click.UUID,
    help="Id of the behavior that replies; the default one by default.",
)
@click.option("--principal", "principal_identity_id", type=click.UUID, help="Id of the receiving identity.")
@click.option(
    "--missed",
    type=choice(Missed),
    default="skip",
    show_default=True,
    help="How to treat ticks that were missed while no worker ran.",
)
@click.option(
    "--catch-up-limit",
    type=click.IntRange(1, MAX_CATCH_UP),
    default=10,
    show_default=True,
    help="Maximum number of missed ticks that run with `--missed catch_up`.",
)
def create_schedule(
    deployment_id: UUID, text: str | None, message: str | None, missed: str, **options: Any
) -> None:
    draft = ScheduleDraft(message=read_message(text, message), missed=Missed(missed), **options)
    with administration() as session:
        made = domain.create_schedule(session, actor=OPERATOR, deployment_id=deployment_id, draft=draft)
    _show(made)


@schedules.command("list", help="List the schedules of a deployment's agent.")
@_deployment
@page_options
def list_schedules(deployment_id: UUID, cursor: str | None, limit: int) -> None:
    with administration() as session:
        page = domain.list_schedules(
            session, actor=OPERATOR, deployment_id=deployment_id, cursor=cursor, limit=limit
        )
    print_json({"schedules": [_document(item) for item in page.items], "nextCursor": page.next_cursor})


@schedules.command("runs", help="List the runs of a schedule, newest first.")
@click.argument("schedule_id", type=click.UUID, metavar="ID")
@_rest_deployment
@page_options
def list_runs(schedule_id: UUID, cursor: str | None, limit: int, **_: object) -> None:
    with administration() as session:
        page = domain.list_runs(session, actor=OPERATOR, schedule_id=schedule_id, cursor=cursor, limit=limit)
    show_page("runs", page)


def _show(schedule: Schedule) -> None:
    print_json(_document(schedule))


def _document(schedule: Schedule) -> dict[str, Any]:
    """Return a schedule's fields as JSON. The caller chose the member names in the message, so these stay unchanged."""
    return document(schedule) | {"message": schedule.message}


add_actions(
    schedules,
    "schedule",
    printer=_show,
    rest_option=_rest_deployment,
    show=(domain.get_schedule, "Get a schedule."),
    disable=(domain.disable_schedule, "Disable a schedule."),
    enable=(domain.enable_schedule, "Enable a schedule; it runs from the next tick on."),
    delete=(domain.delete_schedule, "Delete a schedule and the list of its runs."),
)
