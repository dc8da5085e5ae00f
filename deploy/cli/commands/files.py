"""The command groups `files`, which uses the SDK, and `read-grants`, which is administrative."""

import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from deploy.cli.client.rest_client import service, service_as_deployment
from deploy.cli.command_context import (
    INSTANT,
    add_list,
    administration,
    document_of,
    in_utc,
    page_options,
    required_id,
    show,
)
from deploy.cli.display.output import is_interactive, print_document
from deploy.cli.display.progress_bars import progress_bar
from deploy.cli.exit_codes import Failure
from shared.files import grants
from shared.files.filters import FILTERS
from shared.identity.access.authorization import OPERATOR

_file = click.argument("file_id", type=click.UUID, metavar="FILE")
_STANDARD = "-"
_SHOWN = ("fileName", "mediaType", "byteSize", "createdAt", "retentionExpiresAt")

files = click.Group("files", help="Manage files and the links that share them.")


@files.command(
    "put",
    help="Upload PATH (`-`: standard input) as a new file, or as the next version of a file with --replace."
    " Large uploads are resumable.",
)
@click.argument("source", metavar="PATH", type=click.Path(path_type=Path, exists=True, allow_dash=True))
@click.option("--name", "file_name", help="File name; that of PATH by default.")
@click.option("--media-type", help="Media type, for example text/plain; guessed from the name by default.")
@click.option(
    "--expires-at",
    type=INSTANT,
    help="Retention deadline in UTC, for example 2030-01-31T12:00:00Z; kept for ever by default.",
)
@click.option(
    "--replace", "replaced_id", type=click.UUID, metavar="FILE", help="Id of the file to add a version to."
)
def put(
    source: Path,
    file_name: str | None,
    media_type: str | None,
    expires_at: datetime | None,
    replaced_id: UUID | None,
) -> None:
    if replaced_id is not None and expires_at is not None:
        raise click.UsageError(
            "--expires-at does not apply to --replace, which keeps the deadline: use `files renew`."
        )
    is_piped = str(source) == _STANDARD
    named = {"file_name": file_name or ("standard-input" if is_piped else source.name)}
    content = sys.stdin.buffer if is_piped else source
    # Prefer the deployment's credentials to the user's API key, because a user cannot own files.
    with service_as_deployment() as client, progress_bar(named["file_name"]) as progress:
        options: dict[str, Any] = {**named, "media_type": media_type, "progress": progress}
        if replaced_id is None:
            stored = client.files.upload(content, retention_expires_at=in_utc(expires_at), **options)
        else:
            # Expect the version that is current now: after a concurrent replace, this replace fails and does not
            # overwrite the other version.
            current = client.files.get(replaced_id)
            stored = client.files.replace(
                replaced_id,
                content,
                expected_version_id=current.version_id,
                expected_revision=current.revision,
                **options,
            )
    show(stored)


@files.command(
    "get",
    help="Download a file to PATH (`-`: standard output), by default to its own name in the current directory.",
)
@_file
@click.argument("path", metavar="[PATH]", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--version", "version_id", type=click.UUID, help="The version; the current one by default.")
def get(file_id: UUID, path: Path | None, version_id: UUID | None) -> None:
    with service() as client:
        found = client.files.get(file_id)
        # Another user may have chosen the file's name, so use only its last component, and overwrite no file.
        target = path or Path(Path(found.metadata.file_name).name)
        if path is None and target.exists():
            raise Failure(f"{target} already exists: name a PATH, which may replace it.")
        with progress_bar(found.metadata.file_name) as progress:
            options: dict[str, Any] = {"version_id": version_id, "progress": progress}
            if str(target) == _STANDARD:
                client.files.download(file_id, sys.stdout.buffer, **options)
                return
            size_bytes = client.files.download(file_id, target, **options)
    print_document(document_of({"id": file_id, "path": str(target), "byte_size": size_bytes}))


_OPTION_TYPES: dict[type, click.ParamType[Any]] = {UUID: click.UUID, datetime: INSTANT, str: click.STRING}


def _filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add an option for each filter in FILTERS to the command that lists files."""
    # Apply in reverse: decorators apply from the last to the first, and the help page should follow FILTERS.
    for each in reversed(FILTERS):
        kind = click.Choice(list(each.choices)) if each.choices else _OPTION_TYPES[each.kind]
        command = click.option(f"--{each.option}", each.name, type=kind, help=each.description)(command)
    return command


@files.command("ls", help="List files, newest first.")
@_filter_options
@page_options
def ls(**filters: Any) -> None:
    values = {
        name: in_utc(value) if isinstance(value, datetime) else value for name, value in filters.items()
    }
    given = {name: str(value) for name, value in document_of(values).items() if value is not None}
    with service() as client:
        page: dict[str, Any] = client.raw.request("GET", "/files", query=given)
    print_document(page | {"files": list(map(_row, page["files"]))} if is_interactive() else page)


@files.command("show", help="Get the metadata of a file.")
@_file
def show_file(file_id: UUID) -> None:
    with service() as client:
        print_document(client.raw.request("GET", f"/files/{file_id}"))


@files.command("share", help="Create a read grant: a link that downloads one version without a credential.")
@_file
@click.option("--version", "version_id", type=click.UUID, help="The version; the current one by default.")
@click.option(
    "--minutes",
    type=click.IntRange(1, 1440),
    default=60,
    show_default=True,
    help="Lifetime of the link in minutes.",
)
def share(file_id: UUID, version_id: UUID | None, minutes: int) -> None:
    with service() as client:
        # Without an option, share the current version: a link is for one version, even after a later replace.
        wanted = version_id or client.files.get(file_id).version_id
        link = client.raw.request(
            "POST", f"/files/{file_id}/versions/{wanted}/grants", query={"ttlSeconds": str(minutes * 60)}
        )
    print_document(link)


@files.command("renew", help="Renew a file's retention: set a later deadline, or keep it for ever.")
@_file
@click.option(
    "--expires-at",
    type=INSTANT,
    help="New deadline in UTC, later than the present one, for example 2030-01-31T12:00:00Z.",
)
@click.option("--for-ever", is_flag=True, help="Remove the deadline; this cannot be undone.")
def renew(file_id: UUID, expires_at: datetime | None, *, for_ever: bool) -> None:
    if (expires_at is None) is not for_ever:
        raise click.UsageError("Set exactly one of --expires-at and --for-ever.")
    with service() as client:
        show(client.files.renew(file_id, in_utc(expires_at)))


@files.command("rm", help="Delete files with all their versions; their links stop working immediately.")
@click.argument("file_ids", nargs=-1, required=True, type=click.UUID, metavar="FILE...")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def rm(file_ids: tuple[UUID, ...], *, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        # Print to the error output, because standard output is the JSON result. Do not ask without a terminal, so
        # that scripts do not need --yes.
        click.confirm(f"Delete {len(file_ids)} of your files?", abort=True, err=True)
    with service() as client:
        deleted = [client.files.delete(file_id) for file_id in file_ids]
    print_document({"files": [document_of({"id": at.id, "deleted_at": at.deleted_at}) for at in deleted]})


read_grants = click.Group("read-grants", help="Manage the read grants of a file.")
add_list(
    read_grants,
    grants.list_grants,
    "List the read grants of a file, newest first, without their URLs.",
    of="file",
    shown="grants",
)


@read_grants.command("revoke", help="Revoke a read grant: its URL returns 410 from now on.")
@click.argument("grant_id", type=click.UUID, metavar="ID")
@required_id("file")
def revoke_read_grant(grant_id: UUID, file_id: UUID) -> None:
    with administration() as session:
        revoked = grants.revoke_grant(session, actor=OPERATOR, file_id=file_id, grant_id=grant_id)
    show(revoked)


def _row(file: dict[str, Any]) -> dict[str, Any]:
    """Return the columns of a file in the table of files."""
    metadata = file["metadata"]
    return {
        "id": file["id"],
        **{name: metadata[name] for name in _SHOWN},
        "availability": file["availability"],
    }
