"""The command group `tasks`: list the states of tasks. Messages are omitted because they may be confidential."""

from uuid import UUID

import click

from deploy.cli.command_context import administration, choice, organization_option, page_options, show_page
from shared.a2a.tasks.administration import list_organization_tasks
from shared.a2a.types import TaskState
from shared.identity.access.authorization import OPERATOR

tasks = click.Group("tasks", help="Manage the tasks of an organization's agents.")


@tasks.command("list", help="List the tasks of an organization's agents, most recently changed first.")
@organization_option
@click.option("--state", type=choice(TaskState), help="Only tasks in this state.")
@click.option("--deployment", "deployment_id", type=click.UUID, help="Only tasks of this deployment's agent.")
@page_options
def list_tasks(
    organization_id: UUID, state: str | None, deployment_id: UUID | None, cursor: str | None, limit: int
) -> None:
    with administration() as session:
        page = list_organization_tasks(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            state=TaskState(state) if state else None,
            deployment_id=deployment_id,
            cursor=cursor,
            limit=limit,
        )
    show_page("tasks", page)
