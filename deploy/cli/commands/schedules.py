"""Commands for the schedules of deployments' agents."""

from typing import Any
from uuid import UUID

import click

from deploy.cli.command_context import (
    acts_on,
    administration,
    choice,
    document,
    paged,
    print_json,
    required_id,
    show_page,
)
from deploy.cli.message_input import read_message
from shared.a2a.schedules import administration as domain
from shared.a2a.schedules.resources import MAX_CATCH_UP, Missed, Schedule, ScheduleDraft
from shared.identity.access.authorization import OPERATOR

_deployment = required_id("deployment")
_far_deployment = click.option(
    "--deployment", "deployment_id", type=click.UUID, help="Whose schedule it is; needed from afar."
)


schedules = click.Group("schedules", help="Manage the schedules of agents.")


@schedules.command("create", help="Create a schedule that sends an agent a message.")
@_deployment
@click.option("--name", required=True, help="What people call it.")
@click.option("--cron", required=True, help='Five fields, as "0 9 * * MON-FRI".')
@click.option(
    "--time-zone", default="UTC", show_default=True, help="Where its times are meant, as IANA names it."
)
@click.option("--text", help="What the agent is told.")
@click.option("--message", help="The same as JSON: a Message of the A2A protocol, without ids and role.")
@click.option(
    "--behavior", "behavior_id", type=click.UUID, help="Who answers; the default behavior if not given."
)
@click.option("--principal", "principal_identity_id", type=click.UUID, help="The identity that receives.")
@click.option(
    "--missed",
    type=choice(Missed),
    default="skip",
    show_default=True,
    help="What becomes of times that passed while nothing ran.",
)
@click.option(
    "--catch-up-limit",
    type=click.IntRange(1, MAX_CATCH_UP),
    default=10,
    show_default=True,
    help="How many of these times are run with `--missed catch_up`.",
)
def create_schedule(
    deployment_id: UUID, text: str | None, message: str | None, missed: str, **said: Any
) -> None:
    draft = ScheduleDraft(message=read_message(text, message), missed=Missed(missed), **said)
    with administration() as session:
        made = domain.create_schedule(session, actor=OPERATOR, deployment_id=deployment_id, draft=draft)
    _show(made)


@schedules.command("list", help="List the schedules of a deployment's agent.")
@_deployment
@paged
def list_schedules(deployment_id: UUID, cursor: str | None, limit: int) -> None:
    with administration() as session:
        page = domain.list_schedules(
            session, actor=OPERATOR, deployment_id=deployment_id, cursor=cursor, limit=limit
        )
    print_json({"schedules": [_document(item) for item in page.items], "nextCursor": page.next_cursor})


@schedules.command("runs", help="List the runs of a schedule, newest first.")
@click.argument("schedule_id", type=click.UUID, metavar="ID")
@_far_deployment
@paged
def list_runs(schedule_id: UUID, cursor: str | None, limit: int, **_: object) -> None:
    with administration() as session:
        page = domain.list_runs(session, actor=OPERATOR, schedule_id=schedule_id, cursor=cursor, limit=limit)
    show_page("runs", page)


def _show(schedule: Schedule) -> None:
    print_json(_document(schedule))


def _document(schedule: Schedule) -> dict[str, Any]:
    """Give a schedule's fields; its message's names are not ours to spell."""
    return document(schedule) | {"message": schedule.message}


acts_on(
    schedules,
    "schedule",
    printed=_show,
    far_option=_far_deployment,
    show=(domain.get_schedule, "Get a schedule."),
    disable=(domain.disable_schedule, "Disable a schedule."),
    enable=(domain.enable_schedule, "Enable a schedule from the next tick on."),
    delete=(domain.delete_schedule, "Delete a schedule and the record of its runs."),
)
