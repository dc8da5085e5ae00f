"""The `quartermaster` command: run a process of the service, or look after its database.

Imports of the service happen inside the commands, so that becoming another program costs only what it must.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from deploy import roles
from deploy.secret_files import read_secret_files


@click.group()
@click.version_option(package_name="quartermaster")
def main() -> None:
    """Exact files, paid model access and A2A agents for organizations."""
    read_secret_files(os.environ)


@main.command()
def web() -> None:
    """Run the HTTP front."""
    roles.become(roles.web_command())


@main.command()
@click.argument("name", type=click.Choice(sorted(roles.WORKERS)))
def worker(name: str) -> None:
    """Run the worker of this name."""
    roles.become(roles.worker_command(name))


@main.command()
def beat() -> None:
    """Run the process that sends out sweeps on schedule."""
    roles.become(roles.beat_command())


@main.command()
def migrate() -> None:
    """Bring the database to the newest schema."""
    from shared.database import Database
    from shared.migrations.runner import migrate as run_migrations
    from shared.settings import load_settings

    database = Database(load_settings().database_url, pool_size=1)
    try:
        run_migrations(database.engine)
    finally:
        database.dispose()


@main.command()
@click.option(
    "--credentials", type=click.Path(path_type=Path), required=True, help="File to write, on the first run."
)
def bootstrap(credentials: Path) -> None:
    """Set up an empty installation: its first owner, organization, deployment and distribution."""
    from deploy.first_run import first_run
    from shared.database import Database
    from shared.settings import load_settings

    settings = load_settings()
    database = Database(settings.database_url, pool_size=1)
    try:
        made = first_run(database, settings, credentials)
    finally:
        database.dispose()
    if made is not None:
        click.echo(f"The owner's API key, shown only now: {made.owner_api_key}")
        click.echo(f"All credentials of this installation are in {credentials}; keep them safe.")
