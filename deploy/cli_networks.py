"""Commands for what a distribution's messaging networks need; values are read from a file, never from the line."""

import json
from typing import Any, TextIO
from uuid import UUID

import click

from deploy.administration import administration, document, installation, print_json
from shared.identity.authorization import OPERATOR
from shared.identity.distributions import DEFAULT_OVERLAP_SECONDS, MAX_OVERLAP_SECONDS
from shared.media import network_administration as domain
from shared.media.networks.registry import NETWORKS

_distribution = click.argument("distribution_id", type=click.UUID, metavar="DISTRIBUTION")
_network = click.argument("network", type=click.Choice(list(NETWORKS)))


networks = click.Group("networks", help="Manage distributions' settings for messaging networks.")


@networks.command("set", help="Replace a distribution's settings for a network.")
@_distribution
@_network
@click.option(
    "--settings",
    "source",
    type=click.File(encoding="utf-8"),
    default="-",
    help="A JSON object of all values by name; standard input by default.",
)
@click.option(
    "--overlap-seconds",
    type=click.IntRange(0, MAX_OVERLAP_SECONDS),
    default=DEFAULT_OVERLAP_SECONDS,
    show_default=True,
    help="How long a signing secret that is replaced stays good.",
)
def put_network_settings(distribution_id: UUID, network: str, source: TextIO, overlap_seconds: int) -> None:
    values = _read(source)
    with installation() as (database, settings), database.transaction() as session:
        shown = domain.put_network_settings(
            session,
            settings,
            by=OPERATOR,
            distribution_id=distribution_id,
            network=NETWORKS[network],
            values=values,
            overlap_seconds=overlap_seconds,
        )
    _show(shown)


@networks.command("show", help="Get which settings a distribution has for a network.")
@_distribution
@_network
def read_network_settings(distribution_id: UUID, network: str) -> None:
    with administration() as session:
        shown = domain.get_network_settings(
            session, by=OPERATOR, distribution_id=distribution_id, network=NETWORKS[network]
        )
    _show(shown)


@networks.command("remove", help="Delete a distribution's settings for a network.")
@_distribution
@_network
def remove_network_settings(distribution_id: UUID, network: str) -> None:
    with administration() as session:
        domain.remove_network_settings(
            session, by=OPERATOR, distribution_id=distribution_id, network=NETWORKS[network]
        )


def _read(source: TextIO) -> dict[str, str]:
    try:
        values: Any = json.load(source)
    except ValueError:
        values = None
    if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
        raise click.ClickException("The settings are a JSON object of texts by name.")
    return values


def _show(shown: domain.NetworkSettings) -> None:
    print_json(document(shown) | {"settings": [document(one) for one in shown.settings]})
