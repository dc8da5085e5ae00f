"""Commands for the console: links that sign in, and the end of sessions."""

import sys
from uuid import UUID

import click

from deploy.cli.command_context import installation, print_json
from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.users import find_user
from shared.identity.sign_in import console_sessions as domain

_EMAIL = "The address of the user; the first operator by default."

console = click.Group("console", help="Manage who is signed in to the console.")


@console.command("link", help="Create a link that opens the console, once and within ten minutes.")
@click.option("--user", "email", help=_EMAIL)
def link(email: str | None) -> None:
    with installation() as (database, settings):
        address = issue_console_link(database, settings.base_url, email)
    if sys.stdout.isatty():
        click.echo(address)
    else:
        print_json({"link": address})


@console.command("sign-out", help="Revoke all sessions of a user, and the links that were not used yet.")
@click.option("--user", "email", help=_EMAIL)
def sign_out(email: str | None) -> None:
    with installation() as (database, _), database.transaction() as session:
        user_id = _find(email, domain.find_operator(session) if email is None else find_user(session, email))
        print_json({"sessions": domain.sign_out_everywhere(session, actor=OPERATOR, user_id=user_id)})


def issue_console_link(database: Database, base_url: str, email: str | None = None) -> str:
    """Issue a link for the user of an address, the first operator by default; give what to open in a browser."""
    with database.transaction() as session:
        user_id = _find(email, domain.find_operator(session) if email is None else find_user(session, email))
        return domain.issue_link(session, actor=OPERATOR, user_id=user_id).address(base_url)


def _find(email: str | None, user_id: UUID | None) -> UUID:
    if user_id is None:
        raise click.ClickException(f"There is no user {email}." if email else "There is no operator.")
    return user_id
