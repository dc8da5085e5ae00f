"""The messaging networks that are supported directly."""

from collections.abc import Mapping

from shared.media.networks.base import Network
from shared.media.networks.discord import Discord
from shared.media.networks.slack import Slack
from shared.media.networks.telegram import Telegram
from shared.media.networks.twilio import Twilio
from shared.media.networks.whatsapp import WhatsApp

_IN_ORDER: tuple[Network, ...] = (Slack(), Twilio(), Telegram(), WhatsApp(), Discord())
NETWORKS: Mapping[str, Network] = {network.name: network for network in _IN_ORDER}


def find_network(name: str) -> Network | None:
    """Return a network by its name; None for generic pushes and unknown names."""
    return NETWORKS.get(name)
