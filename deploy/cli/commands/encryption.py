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
    # Limit the list, because a lost key can make every secret unreadable. The exit code depends on the full list.
    print_json({"renewed": done.renewed, "unreadable": list(done.unreadable[:SHOWN])})
    if done.unreadable:
        raise click.exceptions.Exit(1)


def all_tables() -> list[Table]:
    """Return all tables of the schema in order of dependency, after importing the modules of every domain."""
    # Import all modules, because a table is registered when its module is imported. An unregistered table would keep
    # its old encryption, and its secrets would be lost when the old keys are removed.
    for module in walk_packages(shared.__path__, "shared."):
        if module.name.endswith("tables"):
            importlib.import_module(module.name)
    return list(metadata.sorted_tables)
