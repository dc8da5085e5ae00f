"""The command group `repositories`: the GitHub repositories of deployments."""

from uuid import UUID

import click

from deploy.cli.command_context import add_actions, administration, show
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory import repositories as domain

repositories = click.Group("repositories", help="Manage the repositories of GitHub deployments.")


@repositories.command(
    "set",
    help="Set the repository of a GitHub deployment. Its workflows obtain access tokens without a client secret.",
)
@click.argument("deployment_id", type=click.UUID, metavar="DEPLOYMENT")
@click.option("--repository", required=True, help="Repository as owner/name.")
@click.option(
    "--ref", help="Branch, or a full ref, that workflows must run on; any branch or tag by default."
)
@click.option("--environment", help="GitHub environment that a workflow's job must run in; any by default.")
@click.option(
    "--repository-id", help="GitHub's numeric repository id; taken from the first token by default."
)
@click.option(
    "--repository-owner-id", help="GitHub's numeric owner id; taken from the first token by default."
)
def set_repository(deployment_id: UUID, **draft: str) -> None:
    with administration() as session:
        shown = domain.put_repository(
            session, actor=OPERATOR, deployment_id=deployment_id, draft=domain.RepositoryDraft(**draft)
        )
    show(shown)


add_actions(
    repositories,
    "deployment",
    show=(domain.get_repository, "Get the repository of a deployment."),
    remove=(
        domain.remove_repository,
        "Delete the repository of a deployment, and revoke the tokens of its workflows.",
    ),
)
