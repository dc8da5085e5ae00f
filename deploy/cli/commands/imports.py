"""The command group `imports`: list a distribution's media imports, and retry failed or paused imports."""

from datetime import datetime
from typing import Any
from uuid import UUID

import click

from deploy.cli.command_context import (
    INSTANT,
    administration,
    choice,
    document_of,
    in_utc,
    installation,
    page_options,
    print_json,
)
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import get_distribution
from shared.media.importing import imports as domain
from shared.media.importing import retries
from shared.media.importing.imports import Import, ImportState

_distribution = click.argument("distribution_id", type=click.UUID, metavar="DISTRIBUTION")
_import = click.argument("import_id", type=click.UUID, metavar="IMPORT")

imports = click.Group("imports", help="Manage the media imports of distributions.")


@imports.command("list", help="List a distribution's imports, newest first.")
@_distribution
@click.option("--state", type=choice(ImportState), help="Only imports in this state.")
@page_options
def list_imports(distribution_id: UUID, state: str | None, cursor: str | None, limit: int) -> None:
    with administration() as session:
        # Check the distribution first: for an unknown id, list_imports() returns an empty page and no error.
        get_distribution(session, actor=OPERATOR, distribution_id=distribution_id)
        page = domain.list_imports(
            session,
            distribution_id=distribution_id,
            state=ImportState(state) if state else None,
            cursor=cursor,
            limit=limit,
        )
    print_json({"imports": [_document(at) for at in page.items], "nextCursor": page.next_cursor})


@imports.command("show", help="Get an import.")
@_distribution
@_import
def show_import(distribution_id: UUID, import_id: UUID) -> None:
    with administration() as session:
        found = domain.get_import(session, distribution_id=distribution_id, import_id=import_id)
    print_json(_document(found))


@imports.command("retry", help="Retry an import that failed or is paused (state Held).")
@_distribution
@_import
def retry(distribution_id: UUID, import_id: UUID) -> None:
    with installation() as (database, settings), database.transaction() as session:
        retried = retries.retry_import(
            session, settings, actor=OPERATOR, distribution_id=distribution_id, import_id=import_id
        )
    print_json(_document(retried))


@imports.command(
    "retry-all", help="Retry the oldest imports that failed or are paused (state Held), at most 500."
)
@_distribution
@click.option("--state", type=click.Choice(["Failed", "Held"]), help="Only imports in this state.")
@click.option("--code", help="Only imports with this error code.")
@click.option(
    "--since",
    type=INSTANT,
    help="Only imports pushed at or after this UTC time, for example 2030-01-31T12:00:00Z.",
)
def retry_all(distribution_id: UUID, state: str | None, code: str | None, since: datetime | None) -> None:
    with installation() as (database, settings), database.transaction() as session:
        count = retries.retry_imports(
            session,
            settings,
            actor=OPERATOR,
            distribution_id=distribution_id,
            state=ImportState(state) if state else None,
            code=code,
            since=in_utc(since),
        )
    print_json({"count": count})


def _document(imported: Import) -> dict[str, Any]:
    """Return an import as the HTTP API does. The source URL is omitted because it may contain a secret."""
    names = (
        *("state", "code", "network", "message_id", "attachment_id", "conversation_id", "attempts"),
        *("file_id", "version_id", "created_at", "ended_at"),
    )
    return document_of({"import_id": imported.id, **{name: getattr(imported, name) for name in names}})
