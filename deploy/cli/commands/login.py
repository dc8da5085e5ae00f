"""Commands to sign in to a service, here or far away, and out again."""

import sys
from dataclasses import replace
from typing import Any

import click

from deploy.cli.client.rest_client import open_service
from deploy.cli.client.saved_logins import (
    Login,
    find_login,
    forget_login,
    login_path,
    read_login,
    store_login,
)
from deploy.cli.display.output import print_document


@click.command(
    help="Set the service that commands ask: asks for an API key, or with --client-id for its client secret,"
    " and stores it in your configuration, readable by you alone. The secret can be piped in."
)
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--client-id", help="Add the credentials of a deployment, which may store files, to those of a person."
)
def login(address: str, client_id: str | None) -> None:
    asked = "API key" if client_id is None else "Client secret"
    secret = _ask_for(asked)
    base_url, known = address.rstrip("/"), read_login()
    # What was stored for another address is not kept: a credential goes to its own service alone.
    stored = known if known is not None and known.base_url == base_url else Login(base_url=base_url)
    given = {"api_key": secret} if client_id is None else {"client_id": client_id, "client_secret": secret}
    tried = replace(Login(base_url=base_url), **given)
    shown = _describe(tried)
    store_login(replace(stored, **given))
    print_document(shown | {"source": str(login_path())})


@click.command(help="Remove the stored login; environment variables and QM_HOME stay.")
def logout() -> None:
    print_document({"loggedOut": forget_login()})


@click.command(help="Get where commands go and as whom, and where that is said.")
def whoami() -> None:
    found = find_login()
    print_document(_describe(found) | {"source": found.source})


def _describe(login: Login) -> dict[str, Any]:
    """Ask the service who this is; a credential that it does not take ends the command."""
    with open_service(login, prefers_deployment=False) as client:
        if login.api_key:
            shown: dict[str, Any] = client.raw.request("GET", "/admin/me")
        else:
            own = client.raw.request("GET", "/v1/key")["data"]
            shown = {"deploymentId": own["deployment_id"], "activeOrganizationId": own["organization_id"]}
    return {"baseUrl": login.base_url, **shown}


def _ask_for(secret: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    asked: str = click.prompt(secret, hide_input=True, err=True)
    return asked.strip()
