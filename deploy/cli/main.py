"""The `quartermaster` command: run a process of the service, administer an installation, or use the service.

Commands import modules when they run: `quartermaster web` replaces itself with another program, and should not load the
modules of administrative commands before that.
"""

import importlib
import os
from functools import cache
from pathlib import Path

import click

from deploy import process_types
from deploy.cli.client.saved_logins import DATABASE_IS_CONFIGURED
from deploy.cli.display.output import take_output_options
from deploy.cli.exit_codes import exit_code_table
from deploy.cli.help_examples import add_examples
from deploy.secret_files import read_secret_files

_ADMINISTRATION = {
    "organizations": "deploy.cli.commands.organizations",
    "members": "deploy.cli.commands.organizations",
    "invitations": "deploy.cli.commands.organizations",
    "users": "deploy.cli.commands.organizations",
    "api-keys": "deploy.cli.commands.organizations",
    "audit-events": "deploy.cli.commands.organizations",
    "identities": "deploy.cli.commands.identities",
    "role-bindings": "deploy.cli.commands.identities",
    "distributions": "deploy.cli.commands.identities",
    "networks": "deploy.cli.commands.networks",
    "notifications": "deploy.cli.commands.notifications",
    "imports": "deploy.cli.commands.imports",
    "read-grants": "deploy.cli.commands.files",
    "blob-store": "deploy.cli.commands.blob_store",
    "deployments": "deploy.cli.commands.deployments",
    "behaviors": "deploy.cli.commands.behaviors",
    "endpoints": "deploy.cli.commands.endpoints",
    "repositories": "deploy.cli.commands.repositories",
    "schedules": "deploy.cli.commands.schedules",
    "tasks": "deploy.cli.commands.tasks",
    "versions": "deploy.cli.commands.deployments",
    "client-credentials": "deploy.cli.commands.deployments",
    "signing-keys": "deploy.cli.commands.deployments",
    "rotate-keys": "deploy.cli.commands.deployments",
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
    "files": "deploy.cli.commands.files",
    "agents": "deploy.cli.commands.agents",
    "listen": "deploy.cli.commands.listen",
}


_WITHOUT_REST_ADAPTER = {
    "login",
    "logout",
    "whoami",
    "files",
    "agents",
    "listen",
    "models",
    "doctor",
    "status",
}
"""Commands that are not converted to REST: they always use REST, need no service, or choose the transport."""
_PASSING_FLAGS = {"web", "worker", "beat", "celery", "run"}


# Cache the command: enable_rest() replaces callbacks in place, and must not wrap a callback twice.
@cache
def _load(name: str) -> click.Command:
    command: click.Command = getattr(importlib.import_module(_ADMINISTRATION[name]), name.replace("-", "_"))
    add_examples(command, f"quartermaster {name}")
    if name in _WITHOUT_REST_ADAPTER:
        return command
    from deploy.cli.rest.rest_commands import enable_rest

    return enable_rest(command, name)


class LazyGroup(click.Group):
    """A command group that imports a command's module only when the command is used."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments. The options `--json` and `--field` may be anywhere on the command line."""
        # Some commands pass their flags to another program, so do not parse `--json` and `--field` for them.
        first = next((word for word in args if not word.startswith("-")), None)
        taken = args if first in _PASSING_FLAGS else take_output_options(ctx, args)
        return super().parse_args(ctx, taken)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands without importing them."""
        return sorted({*super().list_commands(ctx), *_ADMINISTRATION})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, which is imported if necessary. Return None if no command has this name."""
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
    """File service, model gateway and A2A agent server for organizations.

    `files`, `models`, `agents` and `listen` use the HTTP API of the first of these that is set: SERVICE_BASE_URL,
    QM_HOME (an installation of `make up`), `quartermaster login`, ./var (the default QM_HOME).
    Administrative commands use the database of DATABASE_URL if that is set; else the same target, over its database
    if it is an installation of `make up`, over HTTP otherwise.
    At a terminal, commands print tables; otherwise, or with --json, they print JSON. With --field PATH they print one
    field of it, for example `--field id` or `--field files.0.id`.
    """
    # Read mounted secrets before DATABASE_URL is checked, because the operator may have mounted DATABASE_URL.
    read_secret_files(os.environ)
    # Record now whether the caller set DATABASE_URL, because the settings of QM_HOME may add this variable below. Only
    # a caller who set the variable wants to use the database; another caller may have a saved login.
    context.meta[DATABASE_IS_CONFIGURED] = "DATABASE_URL" in os.environ
    if "DATABASE_URL" not in os.environ:
        from deploy.embedded import home

        # Add the settings of `make up`, which a new shell does not have. setdefault() keeps variables of the shell.
        for name, value in home.Home(Path(os.environ.get("QM_HOME") or home.DEFAULT)).read_settings().items():
            os.environ.setdefault(name, value)


_flags = click.argument("flags", nargs=-1, type=click.UNPROCESSED)


@main.command(help="Get the completion script for a shell; load it from the shell's startup file.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    if completion_class is not None:
        click.echo(completion_class(main, {}, "quartermaster", "_QUARTERMASTER_COMPLETE").source())


@main.command(help="Run a web process, which serves HTTP; flags for gunicorn follow `--`.")
@_flags
def web(flags: tuple[str, ...]) -> None:
    process_types.become([*process_types.web_command(), *flags])


@main.command(
    help="Run the worker NAME; flags for `celery worker` follow `--` and override the built-in ones."
)
@click.argument("name", type=click.Choice(sorted(process_types.WORKERS)))
@_flags
def worker(name: str, flags: tuple[str, ...]) -> None:
    process_types.become([*process_types.worker_command(name), *flags])


@main.command(help="Run the scheduler of periodic jobs (sweeps); flags for `celery beat` follow `--`.")
@_flags
def beat(flags: tuple[str, ...]) -> None:
    process_types.become([*process_types.beat_command(), *flags])


@main.command(
    help="Run a command of Celery against the job broker: inspect, control, status or events.",
    # Pass all options to Celery, including `--help`.
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
)
@_flags
def celery(flags: tuple[str, ...]) -> None:
    process_types.become(process_types.celery_command(flags))


@main.command(
    help="Migrate the database to this release's schema, and grant the service's role its privileges."
)
def migrate() -> None:
    from deploy.cli.command_context import installation
    from shared.db.database import Database
    from shared.db.role_limits import set_limits
    from shared.migrations.grants import current_role, grant_access
    from shared.migrations.runner import migrate as run_migrations

    with installation() as (database, settings):
        url = settings.migrations_database_url
        # Use MIGRATIONS_DATABASE_URL, which should bypass a pooler: a pooler's time limits would end long migrations.
        owner = Database(url, pool_size=1) if url else Database.of(settings, pool_size=1)
        try:
            run_migrations(owner.engine)
            # Grant access after the migrations, because the grants name tables that the migrations create.
            grant_access(owner.engine, current_role(database.engine))
            if settings.database_pooler:
                set_limits(database)
        finally:
            owner.dispose()


@main.command(
    help="Create the first owner, organization, deployment and distribution of an empty installation."
)
@click.option(
    "--credentials",
    type=click.Path(path_type=Path),
    required=True,
    help="File to create with the credentials.",
)
def bootstrap(credentials: Path) -> None:
    from deploy.cli.command_context import installation
    from deploy.cli.first_run import first_run

    with installation() as (database, settings):
        made = first_run(database, settings, credentials)
    if made is not None:
        # Print only the path and not the secrets, because this output may be stored in logs.
        click.echo(f"The first owner's API key and the other credentials are in {credentials}; keep it safe.")
