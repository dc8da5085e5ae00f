"""The command group `console`: create sign-in links, and revoke sessions."""

import sys
from uuid import UUID

import click

from deploy.cli.command_context import installation, print_json
from shared.db.database import Database, Session
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.users import find_user
from shared.identity.sign_in import console_sessions as domain

_EMAIL = "Email address of the user; the first operator by default."

console = click.Group("console", help="Manage sign-in links and sessions of the console.")


@console.command(
    "link", help="Create a link that signs in to the console; it works once, within ten minutes."
)
@click.option("--user", "email", help=_EMAIL)
def link(email: str | None) -> None:
    with installation() as (database, settings):
        address = issue_console_link(database, settings.base_url, email)
    # Print only the link at a terminal, where a person opens it. Print JSON for scripts.
    if sys.stdout.isatty():
        click.echo(address)
    else:
        print_json({"link": address})


@console.command("sign-out", help="Revoke all console sessions and unused sign-in links of a user.")
@click.option("--user", "email", help=_EMAIL)
def sign_out(email: str | None) -> None:
    with installation() as (database, _), database.transaction() as session:
        user_id = _find(session, email)
        print_json({"sessions": domain.sign_out_everywhere(session, actor=OPERATOR, user_id=user_id)})


def issue_console_link(database: Database, base_url: str, email: str | None = None) -> str:
    """Create a sign-in link for a user, and return the link's URL. The default user is the first operator.

    Raises ClickException if the user does not exist.
    """
    with database.transaction() as session:
        user_id = _find(session, email)
        return domain.issue_link(session, actor=OPERATOR, user_id=user_id).address(base_url)


def _find(session: Session, email: str | None) -> UUID:
    user_id = domain.find_operator(session) if email is None else find_user(session, email)
    if user_id is None:
        raise click.ClickException(
            f"There is no user {email}: check the address with `quartermaster users list`."
            if email
            else "There is no operator: name a user with --user."
        )
    return user_id
