"""The command group `networks`: settings and accounts of a distribution's messaging networks.

The commands read secret values from a file, because other users of the host can see command lines.
"""

import json
from typing import Any, TextIO
from uuid import UUID

import click

from deploy.cli.command_context import (
    administration,
    document,
    installation,
    page_options,
    print_json,
    show,
    show_page,
)
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import DEFAULT_OVERLAP_SECONDS, MAX_OVERLAP_SECONDS
from shared.media.network_setup import network_accounts, slack_installations
from shared.media.network_setup import network_administration as domain
from shared.media.networks.registry import NETWORKS

_distribution = click.argument("distribution_id", type=click.UUID, metavar="DISTRIBUTION")
_network = click.argument("network", type=click.Choice(list(NETWORKS)))
_account = click.argument("account")
_target = click.option(
    "--to",
    "target_id",
    type=click.UUID,
    required=True,
    help="Id of the distribution that receives its messages.",
)

networks = click.Group("networks", help="Manage the messaging networks of distributions.")


@networks.command("set", help="Replace all settings that a distribution has for a network.")
@_distribution
@_network
@click.option(
    "--settings",
    "source",
    type=click.File(encoding="utf-8"),
    default="-",
    help="File with a JSON object of all settings, name to text; standard input by default.",
)
@click.option(
    "--overlap-seconds",
    type=click.IntRange(0, MAX_OVERLAP_SECONDS),
    default=DEFAULT_OVERLAP_SECONDS,
    show_default=True,
    help="Seconds for which a replaced signing secret stays valid.",
)
def put_network_settings(distribution_id: UUID, network: str, source: TextIO, overlap_seconds: int) -> None:
    values = _read(source)
    with installation() as (database, settings), database.transaction() as session:
        shown = domain.put_network_settings(
            session,
            settings,
            actor=OPERATOR,
            distribution_id=distribution_id,
            network=NETWORKS[network],
            values=values,
            overlap_seconds=overlap_seconds,
        )
    _show(shown)


@networks.command(
    "show", help="Get the names of a distribution's settings for a network, without secret values."
)
@_distribution
@_network
def read_network_settings(distribution_id: UUID, network: str) -> None:
    with administration() as session:
        shown = domain.get_network_settings(
            session, actor=OPERATOR, distribution_id=distribution_id, network=NETWORKS[network]
        )
    _show(shown)


@networks.command("remove", help="Delete a distribution's settings for a network.")
@_distribution
@_network
def remove_network_settings(distribution_id: UUID, network: str) -> None:
    with administration() as session:
        domain.remove_network_settings(
            session, actor=OPERATOR, distribution_id=distribution_id, network=NETWORKS[network]
        )


@networks.command("route", help="Set the distribution that receives the messages of a network's account.")
@_distribution
@_network
@_account
@_target
def put_network_account(distribution_id: UUID, network: str, account: str, target_id: UUID) -> None:
    with administration() as session:
        routed = network_accounts.put_network_account(
            session,
            actor=OPERATOR,
            distribution_id=distribution_id,
            network=NETWORKS[network],
            account=account,
            target_id=target_id,
        )
    show(routed)


@networks.command("install", help="Get the URL at which a Slack workspace installs a distribution's app.")
@_distribution
@_target
def begin_installation(distribution_id: UUID, target_id: UUID) -> None:
    with installation() as (database, settings), database.transaction() as session:
        begun = slack_installations.begin_installation(
            session, settings, actor=OPERATOR, distribution_id=distribution_id, target_id=target_id
        )
    show(begun)


@networks.command(
    "list-routes", help="List the accounts of a network with the distributions that receive for them."
)
@_distribution
@_network
@page_options
def list_network_accounts(distribution_id: UUID, network: str, cursor: str | None, limit: int) -> None:
    with administration() as session:
        page = network_accounts.list_network_accounts(
            session,
            actor=OPERATOR,
            distribution_id=distribution_id,
            network=NETWORKS[network],
            cursor=cursor,
            limit=limit,
        )
    show_page("accounts", page)


@networks.command("unroute", help="Delete the route of a network's account.")
@_distribution
@_network
@_account
def remove_network_account(distribution_id: UUID, network: str, account: str) -> None:
    with administration() as session:
        network_accounts.remove_network_account(
            session,
            actor=OPERATOR,
            distribution_id=distribution_id,
            network=NETWORKS[network],
            account=account,
        )


def _read(source: TextIO) -> dict[str, str]:
    try:
        values: Any = json.load(source)
    # Do not quote the input in the message, because the input contains secrets.
    except ValueError:
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise click.ClickException("The settings must be a JSON object with text values.")
    return values


def _show(shown: domain.NetworkSettings) -> None:
    print_json(document(shown) | {"settings": [document(one) for one in shown.settings]})
