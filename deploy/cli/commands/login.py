"""The commands `login`, `logout` and `whoami`: store, delete and show the credential for a service."""

import sys
from dataclasses import replace
from typing import Any

import click

from deploy.cli.client.rest_client import open_service
from deploy.cli.client.saved_logins import (
    Login,
    delete_login,
    find_login,
    login_path,
    read_login,
    store_login,
)
from deploy.cli.display.output import print_document


@click.command(
    help="Set the service at ADDRESS as the target of commands. Prompts for an API key, or with --client-id for the"
    " client secret, or reads it from standard input. Stores it in a file that only you can read."
)
@click.argument("address", metavar="ADDRESS")
@click.option(
    "--client-id",
    help="Client id of a deployment, which can own uploaded files; an API key stored before is kept.",
)
def login(address: str, client_id: str | None) -> None:
    secret = _read_secret("API key" if client_id is None else "Client secret")
    base_url, known = address.rstrip("/"), read_login()
    # Reuse stored credentials only for the same address: a credential must not be sent to another service.
    stored = known if known is not None and known.base_url == base_url else Login(base_url=base_url)
    given = {"api_key": secret} if client_id is None else {"client_id": client_id, "client_secret": secret}
    # Before the new credential is stored, send a request with only this credential.
    tried = replace(Login(base_url=base_url), **given)
    shown = _describe(tried)
    store_login(replace(stored, **given))
    print_document(shown | {"source": str(login_path())})


@click.command(help="Remove the stored login; environment variables and QM_HOME still apply.")
def logout() -> None:
    print_document({"loggedOut": delete_login()})


@click.command(
    help="Get the service that commands use, the signed-in user or deployment, and the credential's source."
)
def whoami() -> None:
    found = find_login()
    print_document(_describe(found) | {"source": found.source})


def _describe(login: Login) -> dict[str, Any]:
    """Return the user or deployment of a login. Raises Failure if the service rejects the login."""
    with open_service(login, prefers_deployment=False) as client:
        if login.api_key:
            shown: dict[str, Any] = client.raw.request("GET", "/admin/me")
        else:
            own = client.raw.request("GET", "/v1/key")["data"]
            shown = {"deploymentId": own["deployment_id"], "activeOrganizationId": own["organization_id"]}
    return {"baseUrl": login.base_url, **shown}


def _read_secret(label: str) -> str:
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    # Prompt for the secret: an option's value would appear in the shell's history and in the list of processes.
    secret: str = click.prompt(label, hide_input=True, err=True)
    return secret.strip()
