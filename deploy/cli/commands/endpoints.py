"""The command group `endpoints`: the A2A servers of deployments whose agents are remote."""

from typing import TextIO
from uuid import UUID

import click

from deploy.cli.command_context import add_actions, installation, show
from shared.a2a.remote import endpoints as domain
from shared.a2a.remote.cards.endpoint_check import check_endpoint as check
from shared.identity.access.authorization import OPERATOR
from shared.identity.tokens.signing_keys import SigningKeys

endpoints = click.Group("endpoints", help="Manage the endpoints of deployments.")


@endpoints.command(
    "set", help="Replace the endpoint of a deployment; omitted options are cleared, including the credential."
)
@click.argument("deployment_id", type=click.UUID, metavar="DEPLOYMENT")
@click.option("--url", required=True, help="Base URL of the agent's A2A 1.0 server.")
@click.option("--card-url", help="URL of its agent card, if it is not below the base URL or its origin.")
@click.option(
    "--interface-url", "interface_override", help="URL for messages, instead of the one on the agent card."
)
@click.option(
    "--credential-header",
    "header",
    help="HTTP header that authenticates to the server, for example X-API-Key.",
)
@click.option(
    "--credential-file",
    "source",
    type=click.File(encoding="utf-8"),
    default="-",
    help="File with the header's value; standard input by default.",
)
@click.option(
    "--resends",
    is_flag=True,
    help="Resend messages after a failure, even if the server may have received them.",
)
def set_endpoint(
    deployment_id: UUID,
    url: str,
    card_url: str | None,
    interface_override: str | None,
    header: str | None,
    source: TextIO,
    *,
    resends: bool,
) -> None:
    # Read the value only if a header is set: otherwise the command must not wait for standard input, the default.
    # Strip the value: a text file ends with a line break, which a header value must not contain.
    credential = domain.Credential(header=header, value=source.read().strip()) if header else None
    draft = domain.EndpointDraft(
        url=url,
        card_url=card_url,
        interface_override=interface_override,
        credential=credential,
        resends=resends,
    )
    with installation() as (database, settings), database.transaction() as session:
        shown = domain.put_endpoint(
            session, settings, actor=OPERATOR, deployment_id=deployment_id, draft=draft
        )
    show(shown)


@endpoints.command(
    "check",
    help="Check the endpoint of a deployment, print its problems, and exit with 1 if it cannot be used.",
)
@click.argument("deployment_id", type=click.UUID, metavar="DEPLOYMENT")
def check_endpoint(deployment_id: UUID) -> None:
    with installation() as (database, settings):
        keys = SigningKeys(database, settings)
        report = check(database, keys, settings, actor=OPERATOR, deployment_id=deployment_id)
    show(report)
    if not report.is_usable:
        raise click.exceptions.Exit(1)


add_actions(
    endpoints,
    "deployment",
    show=(domain.get_endpoint, "Get the endpoint of a deployment, without its credential."),
    remove=(
        domain.remove_endpoint,
        "Delete the endpoint of a deployment and the `remote` behavior that uses it.",
    ),
)
