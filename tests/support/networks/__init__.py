"""Stand-ins for the messaging networks: each sends signed webhooks as its network does, and serves its network's API.

`with SlackStandIn() as slack:` listens; `slack.keep(sample)` gives the id of a file, `slack.message(id)` the body of a
webhook that tells of it, `slack.sign(body, url=…)` the headers, and `slack.settings` what a distribution needs.
"""

from __future__ import annotations

from tests.support.networks.discord import DiscordStandIn
from tests.support.networks.serving import StandIn
from tests.support.networks.slack import SlackStandIn
from tests.support.networks.telegram import TelegramStandIn
from tests.support.networks.twilio import TwilioStandIn
from tests.support.networks.whatsapp import WhatsAppStandIn

STAND_INS: tuple[type[StandIn], ...] = (
    SlackStandIn,
    TwilioStandIn,
    TelegramStandIn,
    WhatsAppStandIn,
    DiscordStandIn,
)
__all__ = [
    "STAND_INS",
    "DiscordStandIn",
    "SlackStandIn",
    "StandIn",
    "TelegramStandIn",
    "TwilioStandIn",
    "WhatsAppStandIn",
]
