"""The `quartermaster` command: run a process of the service, or look after its database.

Imports of the service happen inside the commands, so that becoming another program costs only what it must.
"""

from __future__ import annotations

from pathlib import Path

import click

from deploy import roles


@click.group()
@click.version_option(package_name="quartermaster")
def main() -> None:
    """Exact files, paid model access and A2A agents for organizations."""


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
    """Make the first owner and organization, unless there are any."""
