"""The command group `blob-store`: show and adopt the identity of a blob store, and move content to another store."""

import click

from deploy.cli.command_context import Progress, administration, installation, print_json, show
from shared.files.maintenance.store_migration import THREADS, move
from shared.files.store_identity import adopt_store, find_store, list_stores, retire_store
from shared.files.stores import open_configured_marker, open_pair
from shared.identity.access.authorization import OPERATOR

blob_store = click.Group("blob-store", help="Manage the store of file content.")


@blob_store.command(
    "show", help="Get the id of the blob store that belongs to the database; empty before its first use."
)
def show_blob_store() -> None:
    with administration() as session:
        found = find_store(session)
        others = [store for store in list_stores(session) if store != found]
    if found is None:
        print_json({})
    else:
        show(found, **({"others": others} if others else {}))


@blob_store.command(
    "adopt",
    help="Set BLOB_STORE as the database's blob store, after its content was moved or restored without its marker.",
)
@click.confirmation_option(prompt="Is BLOB_STORE mounted here, and does it hold this database's content?")
def adopt_blob_store() -> None:
    with installation() as (database, settings):
        marked = open_configured_marker(settings)
        with database.transaction() as session:
            adopted = adopt_store(session, actor=OPERATOR, marked=marked)
    show(adopted)


@blob_store.command(
    "move",
    help="Copy all content from SECOND_BLOB_STORE to BLOB_STORE while the service runs; resumable at any time.",
)
@click.option(
    "--threads",
    type=click.IntRange(1, 64),
    default=THREADS,
    show_default=True,
    help="Number of versions copied concurrently.",
)
def move_blob_store(threads: int) -> None:
    with installation() as (database, settings):
        try:
            pair = open_pair(settings, database)
        except ValueError as error:
            raise click.UsageError(str(error)) from None
        moved = move(database, pair, threads=threads, progress=Progress().add)
        # Print this only after a complete move: until then, reads still need the second store.
        if moved.is_complete:
            with database.transaction() as session:
                retire_store(session, actor=OPERATOR, moved_to=open_configured_marker(settings))
    print_json(
        {
            "versions": moved.versions,
            "bytes": moved.size_bytes,
            "unreadable": sorted(map(str, moved.unreadable)),
            "isComplete": moved.is_complete,
        }
    )
    if not moved.is_complete:
        raise click.exceptions.Exit(1)
