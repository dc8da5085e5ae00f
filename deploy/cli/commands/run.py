"""The command `run`: run the agent program of a GitHub deployment on the installation's host."""

import os
from pathlib import Path
from uuid import UUID

import click

from deploy.agent_runner.agent_program import AgentProgram, Plan
from deploy.agent_runner.git_checkout import CheckoutFailed
from deploy.cli.command_context import installation, required_id

RUNS_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "VIRTUAL_ENV")
"""The variables that a program inherits. Other variables of the environment contain secrets of the service."""


@click.command(
    help="Run the agent program of a GitHub deployment, with a client secret that is valid while it runs.",
    # Do not parse options after the command name: these options belong to the program.
    context_settings={"ignore_unknown_options": True},
)
@required_id("deployment")
@click.option(
    "--checkout",
    type=click.Path(path_type=Path, exists=True, file_okay=False, resolve_path=True),
    help="Directory of a local checkout to run in; by default the repository is fetched at its ref.",
)
@click.option(
    "--server", default="https://github.com", show_default=True, help="Git server of the repository."
)
@click.option(
    "--health-url", help="URL of the program that returns 200 while it is healthy; polled every 10 s."
)
@click.option(
    "--pass",
    "passed",
    multiple=True,
    help="Name of an environment variable to pass to the program; repeatable.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    deployment_id: UUID,
    checkout: Path | None,
    server: str,
    health_url: str | None,
    passed: tuple[str, ...],
    command: tuple[str, ...],
) -> None:
    # List the allowed variables and not the forbidden ones, so that a setting that is added later does not leak.
    environment = {name: os.environ[name] for name in (*RUNS_ON, *passed) if name in os.environ}
    plan = Plan(
        deployment_id=deployment_id,
        checkout=checkout,
        server=server,
        health_url=health_url,
        environment=environment,
        command=command,
    )
    with installation() as (database, settings):
        try:
            AgentProgram(database, settings, plan).run()
        except CheckoutFailed as error:
            raise click.ClickException(str(error)) from error
