"""Stand-ins for the messaging networks: each sends signed webhooks as its network does, and serves its network's API.

`with SlackStandIn() as slack:` listens. `slack.keep(sample)` returns the id of a file, `slack.message(id)` the body of
a webhook that contains it, `slack.sign(body, url=…)` the headers, and `slack.settings` what a distribution needs. Each
network has a stand-in in the module of its name, and the tests of all networks run with it.
"""

from importlib import import_module

from shared.media.networks.registry import NETWORKS
from tests.support.networks.discord import DiscordStandIn
from tests.support.networks.serving import StandIn
from tests.support.networks.slack import SlackStandIn
from tests.support.networks.telegram import TelegramStandIn
from tests.support.networks.twilio import TwilioStandIn
from tests.support.networks.whatsapp import WhatsAppStandIn


def _stand_in_of(network: str) -> type[StandIn]:
    module = import_module(f"{__name__}.{network}")
    (found,) = (
        one for one in vars(module).values() if isinstance(one, type) and vars(one).get("name") == network
    )
    assert issubclass(found, StandIn)
    return found


STAND_INS = tuple(_stand_in_of(network) for network in NETWORKS)
__all__ = [
    "STAND_INS",
    "DiscordStandIn",
    "SlackStandIn",
    "StandIn",
    "TelegramStandIn",
    "TwilioStandIn",
    "WhatsAppStandIn",
]
