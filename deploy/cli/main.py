"""The `quartermaster` command: run a process of the service, or administer its database.

Imports happen inside the commands, so that becoming another program costs only what it must.
"""

import importlib
import os
from functools import cache
from pathlib import Path

import click

from deploy import process_types
from deploy.cli.client.saved_logins import DATABASE_IS_NAMED
from deploy.cli.display.output import take_json_flag
from deploy.cli.exit_codes import exit_code_table
from deploy.cli.help_examples import add_examples
from deploy.secret_files import read_secret_files

_ADMINISTRATION = {
    "organizations": "deploy.cli.commands.people",
    "members": "deploy.cli.commands.people",
    "invitations": "deploy.cli.commands.people",
    "users": "deploy.cli.commands.people",
    "api-keys": "deploy.cli.commands.people",
    "audit-events": "deploy.cli.commands.people",
    "identities": "deploy.cli.commands.identities",
    "role-bindings": "deploy.cli.commands.identities",
    "distributions": "deploy.cli.commands.identities",
    "networks": "deploy.cli.commands.networks",
    "notifications": "deploy.cli.commands.notifications",
    "imports": "deploy.cli.commands.imports",
    "read-grants": "deploy.cli.commands.files",
    "blob-store": "deploy.cli.commands.files",
    "deployments": "deploy.cli.commands.agents",
    "behaviors": "deploy.cli.commands.behaviors",
    "endpoints": "deploy.cli.commands.endpoints",
    "repositories": "deploy.cli.commands.repositories",
    "schedules": "deploy.cli.commands.schedules",
    "tasks": "deploy.cli.commands.tasks",
    "versions": "deploy.cli.commands.agents",
    "client-credentials": "deploy.cli.commands.agents",
    "signing-keys": "deploy.cli.commands.agents",
    "rotate-keys": "deploy.cli.commands.agents",
    "reencrypt": "deploy.cli.commands.encryption",
    "run": "deploy.cli.commands.run",
    "models": "deploy.cli.commands.models",
    "credits": "deploy.cli.commands.credits",
    "usage": "deploy.cli.commands.usage",
    "usage-records": "deploy.cli.commands.usage",
    "doctor": "deploy.cli.commands.doctor",
    "status": "deploy.cli.commands.doctor",
    "budgets": "deploy.cli.commands.budgets",
    "console": "deploy.cli.commands.console",
    "login": "deploy.cli.commands.login",
    "logout": "deploy.cli.commands.login",
    "whoami": "deploy.cli.commands.login",
    "files": "deploy.cli.commands.content",
    "agents": "deploy.cli.commands.talk",
    "listen": "deploy.cli.commands.listen",
}


_BY_THEMSELVES = {"login", "logout", "whoami", "files", "agents", "listen", "models", "doctor", "status"}
"""Commands that need no database, or find by themselves where they work."""
_WITH_FLAGS_OF_OTHERS = {"web", "worker", "beat", "celery", "run"}


@cache
def _load(name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(_ADMINISTRATION[name]), name.replace("-", "_"))
    add_examples(command, f"quartermaster {name}")
    if name in _BY_THEMSELVES:
        return command
    from deploy.cli.rest.rest_commands import reach

    return reach(command, name)


class LazyGroup(click.Group):
    """A group that imports the module of an administrative command when that is asked for."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take `--json` wherever it stands."""
        first = next((word for word in args if not word.startswith("-")), None)
        taken = args if first in _WITH_FLAGS_OF_OTHERS else take_json_flag(ctx, args)
        return super().parse_args(ctx, taken)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """List all commands, loaded or not."""
        return sorted({*super().list_commands(ctx), *_ADMINISTRATION})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Give a command, loading it if need be."""
        if cmd_name not in _ADMINISTRATION:
            found = super().get_command(ctx, cmd_name)
            if found is not None:
                add_examples(found, f"quartermaster {cmd_name}")
            return found
        return _load(cmd_name)


@click.group(cls=LazyGroup, epilog=exit_code_table())
@click.version_option(package_name="quartermaster")
@click.pass_context
def main(context: click.Context) -> None:
    """Exact files, paid model access and A2A agents for organizations.

    Where DATABASE_URL is not set, commands work on what `make up` runs over QM_HOME (./var). Those for files, models
    and agents ask the service of SERVICE_BASE_URL, else of `quartermaster login`, else that one.
    At a terminal commands print tables, with --json and elsewhere JSON.
    """
    read_secret_files(os.environ)
    context.meta[DATABASE_IS_NAMED] = "DATABASE_URL" in os.environ
    if "DATABASE_URL" not in os.environ:
        from deploy.embedded import home

        for name, value in home.Home(Path(os.environ.get("QM_HOME") or home.DEFAULT)).read_settings().items():
            os.environ.setdefault(name, value)


_flags = click.argument("flags", nargs=-1, type=click.UNPROCESSED)


@main.command(help="Get the script that completes commands and options in a shell.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    from click.shell_completion import get_completion_class

    completing = get_completion_class(shell)
    if completing is not None:
        click.echo(completing(main, {}, "quartermaster", "_QUARTERMASTER_COMPLETE").source())


@main.command(help="Run the HTTP front; flags of gunicorn follow `--`.")
@_flags
def web(flags: tuple[str, ...]) -> None:
    process_types.become([*process_types.web_command(), *flags])


@main.command(help="Run the worker of this name; flags of `celery worker` follow `--` and override ours.")
@click.argument("name", type=click.Choice(sorted(process_types.WORKERS)))
@_flags
def worker(name: str, flags: tuple[str, ...]) -> None:
    process_types.become([*process_types.worker_command(name), *flags])


@main.command(help="Run the process that sends out sweeps on schedule; flags of `celery beat` follow `--`.")
@_flags
def beat(flags: tuple[str, ...]) -> None:
    process_types.become([*process_types.beat_command(), *flags])


@main.command(
    help="Run Celery's own commands over the broker: inspect, control, status, events.",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@_flags
def celery(flags: tuple[str, ...]) -> None:
    process_types.become(process_types.celery_command(flags))


@main.command(help="Migrate the database to the newest schema, and grant the processes' role what it needs.")
def migrate() -> None:
    from deploy.cli.command_context import installation
    from shared.db.database import Database
    from shared.db.role_limits import set_limits
    from shared.migrations.grants import current_role, grant_access
    from shared.migrations.runner import migrate as run_migrations

    with installation() as (database, settings):
        url = settings.migrations_database_url
        # Beside a pooler the address of the migrations' role is best Postgres' own.
        owner = Database(url, pool_size=1) if url else Database.of(settings, pool_size=1)
        try:
            run_migrations(owner.engine)
            grant_access(owner.engine, current_role(database.engine))
            if settings.database_pooler:
                set_limits(database)
        finally:
            owner.dispose()


@main.command(
    help="Create the first owner, organization, deployment and distribution of an empty installation."
)
@click.option(
    "--credentials", type=click.Path(path_type=Path), required=True, help="File to write, on the first run."
)
def bootstrap(credentials: Path) -> None:
    from deploy.cli.command_context import installation
    from deploy.cli.first_run import first_run

    with installation() as (database, settings):
        made = first_run(database, settings, credentials)
    if made is not None:
        # The secrets stand in that file alone: what is printed here ends in logs.
        click.echo(
            f"The first owner's API key and all other credentials are in {credentials}; keep them safe."
        )
