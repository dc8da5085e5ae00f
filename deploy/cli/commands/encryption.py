"""The command `reencrypt`: encrypt all stored secrets with the newest key, so that old keys can be removed."""

import importlib
from pkgutil import walk_packages

import click
from sqlalchemy import Table

import shared
from deploy.cli.command_context import installation, print_json
from shared.db.schema import metadata
from shared.identity.credentials import reencryption

SHOWN = 100


@click.command(
    help="Encrypt every stored secret with the first of ENCRYPTION_KEYS; exit with 1 if no key can decrypt one of them."
)
def reencrypt() -> None:
    with installation() as (database, settings):
        done = reencryption.reencrypt(database, settings, all_tables())
    # The list is cut because a lost key makes every secret unreadable; the exit code does not depend on it.
    print_json({"renewed": done.renewed, "unreadable": list(done.unreadable[:SHOWN])})
    if done.unreadable:
        raise click.exceptions.Exit(1)


def all_tables() -> list[Table]:
    """Import the tables of every domain, and return all tables of the schema in order of dependency."""
    # A table registers when its module is imported. A table that is missing here would keep its old encryption, and
    # lose its secrets when the old keys are removed.
    for module in walk_packages(shared.__path__, "shared."):
        if module.name.endswith("tables"):
            importlib.import_module(module.name)
    return list(metadata.sorted_tables)
