"""Commands for files: the links that share them."""

from __future__ import annotations

from uuid import UUID

import click

from deploy.administration import administration, paged, show, show_page
from shared.files import grant_revocation as domain
from shared.identity.authorization import OPERATOR

_file = click.option("--file", "file_id", type=click.UUID, required=True)


@click.group("read-grants")
def read_grants() -> None:
    """Look after the read grants of a file."""


@read_grants.command("list")
@_file
@paged
def list_read_grants(file_id: UUID, cursor: str | None, limit: int) -> None:
    """List the read grants of a file, newest first, without their urls."""
    with administration() as session:
        page = domain.list_grants(session, by=OPERATOR, file_id=file_id, cursor=cursor, limit=limit)
    show_page("grants", page)


@read_grants.command("revoke")
@click.argument("grant_id", type=click.UUID, metavar="ID")
@_file
def revoke_read_grant(grant_id: UUID, file_id: UUID) -> None:
    """Revoke a read grant: from now on its link answers 410."""
    with administration() as session:
        revoked = domain.revoke_grant(session, by=OPERATOR, file_id=file_id, grant_id=grant_id)
    show(revoked)
