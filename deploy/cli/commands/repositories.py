"""Commands for the repositories of GitHub deployments."""

from uuid import UUID

import click

from deploy.cli.command_context import acts_on, administration, show
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory import repositories as domain

repositories = click.Group("repositories", help="Manage the repositories of GitHub deployments.")


@repositories.command(
    "set",
    help="Replace the repository of a GitHub deployment, whose workflows get access tokens without a secret.",
)
@click.argument("deployment_id", type=click.UUID, metavar="DEPLOYMENT")
@click.option("--repository", required=True, help="owner/name on GitHub.")
@click.option("--ref", help="A branch, or a whole ref; any branch or tag by default.")
@click.option("--environment", help="The environment that a job must run in.")
@click.option("--repository-id", help="GitHub's number of it; by default that of the first token.")
@click.option(
    "--repository-owner-id", help="GitHub's number of its owner; by default that of the first token."
)
def set_repository(deployment_id: UUID, **draft: str) -> None:
    with administration() as session:
        shown = domain.put_repository(
            session, actor=OPERATOR, deployment_id=deployment_id, draft=domain.RepositoryDraft(**draft)
        )
    show(shown)


acts_on(
    repositories,
    "deployment",
    show=(domain.get_repository, "Get the repository of a deployment."),
    remove=(
        domain.remove_repository,
        "Delete the repository of a deployment, and end the tokens of its workflows.",
    ),
)
