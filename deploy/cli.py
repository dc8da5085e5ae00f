"""The `quartermaster` command: run a process of the service, or administer its database.

Imports happen inside the commands, so that becoming another program costs only what it must.
"""

import importlib
import os
from pathlib import Path

import click

from deploy import process_types
from deploy.secret_files import read_secret_files

_ADMINISTRATION = {
    "organizations": "deploy.cli_people",
    "members": "deploy.cli_people",
    "invitations": "deploy.cli_people",
    "users": "deploy.cli_people",
    "api-keys": "deploy.cli_people",
    "audit-events": "deploy.cli_people",
    "identities": "deploy.cli_identities",
    "role-bindings": "deploy.cli_identities",
    "distributions": "deploy.cli_identities",
    "networks": "deploy.cli_networks",
    "notifications": "deploy.cli_notifications",
    "read-grants": "deploy.cli_files",
    "blob-store": "deploy.cli_files",
    "deployments": "deploy.cli_agents",
    "behaviors": "deploy.cli_behaviors",
    "endpoints": "deploy.cli_endpoints",
    "repositories": "deploy.cli_repositories",
    "schedules": "deploy.cli_schedules",
    "versions": "deploy.cli_agents",
    "client-credentials": "deploy.cli_agents",
    "signing-keys": "deploy.cli_agents",
    "rotate-keys": "deploy.cli_agents",
    "reencrypt": "deploy.cli_encryption",
    "run": "deploy.cli_run",
    "models": "deploy.cli_models",
    "credits": "deploy.cli_credits",
    "usage": "deploy.cli_usage",
    "doctor": "deploy.cli_doctor",
    "status": "deploy.cli_doctor",
    "budgets": "deploy.cli_budgets",
}


class LazyGroup(click.Group):
    """A group that imports the module of an administrative command when that is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all commands, loaded or not."""
        return sorted({*super().list_commands(ctx), *_ADMINISTRATION})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Give a command, loading it if need be."""
        if cmd_name not in _ADMINISTRATION:
            return super().get_command(ctx, cmd_name)
        module = importlib.import_module(_ADMINISTRATION[cmd_name])
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


@click.group(cls=LazyGroup)
@click.version_option(package_name="quartermaster")
def main() -> None:
    """Exact files, paid model access and A2A agents for organizations.

    Where DATABASE_URL is not set, commands work on what `make up` runs over QM_HOME (./var).
    """
    read_secret_files(os.environ)
    if "DATABASE_URL" not in os.environ:
        from deploy.home import DEFAULT, Home

        for name, value in Home(Path(os.environ.get("QM_HOME") or DEFAULT)).read_settings().items():
            os.environ.setdefault(name, value)


@main.command(help="Run the HTTP front.")
def web() -> None:
    process_types.become(process_types.web_command())


@main.command(help="Run the worker of this name.")
@click.argument("name", type=click.Choice(sorted(process_types.WORKERS)))
def worker(name: str) -> None:
    process_types.become(process_types.worker_command(name))


@main.command(help="Run the process that sends out sweeps on schedule.")
def beat() -> None:
    process_types.become(process_types.beat_command())


@main.command(help="Migrate the database to the newest schema, and grant the processes' role what it needs.")
def migrate() -> None:
    from deploy.administration import installation
    from shared.database import Database
    from shared.migrations.grants import current_role, grant_access
    from shared.migrations.runner import migrate as run_migrations

    with installation() as (database, settings):
        owner = Database(settings.migrations_database_url or settings.database_url, pool_size=1)
        try:
            run_migrations(owner.engine)
            grant_access(owner.engine, current_role(database.engine))
        finally:
            owner.dispose()


@main.command(
    help="Create the first owner, organization, deployment and distribution of an empty installation."
)
@click.option(
    "--credentials", type=click.Path(path_type=Path), required=True, help="File to write, on the first run."
)
def bootstrap(credentials: Path) -> None:
    from deploy.administration import installation
    from deploy.first_run import first_run

    with installation() as (database, settings):
        made = first_run(database, settings, credentials)
    if made is not None:
        # The secrets stand in that file alone: what is printed here ends in logs.
        click.echo(
            f"The first owner's API key and all other credentials are in {credentials}; keep them safe."
        )
