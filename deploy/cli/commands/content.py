"""Commands for files: store, fetch, list, share and delete them, over REST by the SDK."""

import sys
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import click

from deploy.cli.client.rest_client import service, service_as_deployment
from deploy.cli.command_context import INSTANT, document_of, in_utc, paged, show
from deploy.cli.display.output import is_for_a_person, print_document
from deploy.cli.display.progress_bars import progress_bar
from deploy.cli.exit_codes import Failure

_file = click.argument("file_id", type=click.UUID, metavar="FILE")
_STANDARD = "-"
_SHOWN = ("fileName", "mediaType", "byteSize", "createdAt", "retentionExpiresAt")

files = click.Group("files", help="Manage files and the links that share them.")


@files.command(
    "put",
    help="Upload a file as agent output, or replace FILE's content; `-` reads standard input."
    " Large ones are sent in steps and go on where they broke off.",
)
@click.argument("source", metavar="PATH", type=click.Path(path_type=Path, exists=True, allow_dash=True))
@click.option("--name", "file_name", help="The file's name; that of PATH by default.")
@click.option("--media-type", help="Guessed from the name by default.")
@click.option("--expires-at", type=INSTANT, help="Until when it is kept; without it for ever.")
@click.option("--replace", "replaced_id", type=click.UUID, metavar="FILE", help="The file to replace.")
def put(
    source: Path,
    file_name: str | None,
    media_type: str | None,
    expires_at: datetime | None,
    replaced_id: UUID | None,
) -> None:
    if replaced_id is not None and expires_at is not None:
        raise click.UsageError("A replaced file keeps its deadline: leave --expires-at out.")
    is_piped = str(source) == _STANDARD
    named = {"file_name": file_name or ("standard-input" if is_piped else source.name)}
    content = sys.stdin.buffer if is_piped else source
    with service_as_deployment() as client, progress_bar(named["file_name"]) as progress:
        options: dict[str, Any] = {**named, "media_type": media_type, "progress": progress}
        if replaced_id is None:
            stored = client.files.upload(content, retention_expires_at=in_utc(expires_at), **options)
        else:
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
    "get", help="Download a file to PATH, by default under its own name here; `-` writes to standard output."
)
@_file
@click.argument("path", metavar="[PATH]", required=False, type=click.Path(path_type=Path, allow_dash=True))
@click.option("--version", "version_id", type=click.UUID, help="The version; the current one by default.")
def get(file_id: UUID, path: Path | None, version_id: UUID | None) -> None:
    with service() as client:
        found = client.files.get(file_id)
        target = path or Path(Path(found.metadata.file_name).name)
        if path is None and target.exists():
            raise Failure(f"{target} exists here: name a PATH to replace it.")
        with progress_bar(found.metadata.file_name) as progress:
            options: dict[str, Any] = {"version_id": version_id, "progress": progress}
            if str(target) == _STANDARD:
                client.files.download(file_id, sys.stdout.buffer, **options)
                return
            size_bytes = client.files.download(file_id, target, **options)
    print_document(document_of({"id": file_id, "path": str(target), "byte_size": size_bytes}))


@files.command("ls", help="List files, newest first.")
@click.option("--name", help="Keep those with words in their names that begin so.")
@click.option("--media-type", help="As image/png, or image/*.")
@click.option("--owner", "owner_id", type=click.UUID, help="The identity that owns them.")
@click.option(
    "--availability",
    type=click.Choice(["Pending", "Available", "Expired", "Deleted"]),
    help="Keep those of which this is true.",
)
@paged
def ls(**filters: Any) -> None:
    given = {name: str(value) for name, value in document_of(filters).items() if value is not None}
    with service() as client:
        page: dict[str, Any] = client.raw.request("GET", "/files", query=given)
    print_document(page | {"files": list(map(_row, page["files"]))} if is_for_a_person() else page)


@files.command("show", help="Get what is known of a file.")
@_file
def show_file(file_id: UUID) -> None:
    with service() as client:
        print_document(client.raw.request("GET", f"/files/{file_id}"))


@files.command("share", help="Create a link to exactly one version, which opens it without a login.")
@_file
@click.option("--version", "version_id", type=click.UUID, help="The version; the current one by default.")
@click.option(
    "--minutes", type=click.IntRange(1, 1440), default=60, show_default=True, help="How long it opens."
)
def share(file_id: UUID, version_id: UUID | None, minutes: int) -> None:
    with service() as client:
        wanted = version_id or client.files.get(file_id).version_id
        link = client.raw.request(
            "POST", f"/files/{file_id}/versions/{wanted}/grants", query={"ttlSeconds": str(minutes * 60)}
        )
    print_document(link)


@files.command("renew", help="Renew a file's retention: until a later moment, or for ever.")
@_file
@click.option("--expires-at", type=INSTANT, help="Later than now, for example 2030-01-31T12:00:00Z.")
@click.option("--for-ever", is_flag=True, help="Instead of a moment; cannot be taken back.")
def renew(file_id: UUID, expires_at: datetime | None, *, for_ever: bool) -> None:
    if (expires_at is None) is not for_ever:
        raise click.UsageError("Give either --expires-at or --for-ever.")
    with service() as client:
        show(client.files.renew(file_id, in_utc(expires_at)))


@files.command("rm", help="Delete files with all their versions; their links stop working at once.")
@click.argument("file_ids", nargs=-1, required=True, type=click.UUID, metavar="FILE...")
@click.option("--yes", is_flag=True, help="Do not ask.")
def rm(file_ids: tuple[UUID, ...], *, yes: bool) -> None:
    if not yes and sys.stdin.isatty():
        click.confirm(f"Delete {len(file_ids)} of your files?", abort=True, err=True)
    with service() as client:
        deleted = [client.files.delete(file_id) for file_id in file_ids]
    print_document({"files": [document_of({"id": at.id, "deleted_at": at.deleted_at}) for at in deleted]})


def _row(file: dict[str, Any]) -> dict[str, Any]:
    """Show a file on one line."""
    metadata = file["metadata"]
    return {
        "id": file["id"],
        **{name: metadata[name] for name in _SHOWN},
        "availability": file["availability"],
    }
