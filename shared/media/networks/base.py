"""The port of a messaging network: how it signs, how its webhooks read, and where its media is.

`answer`, `accounts`, `attachments` and `messages` run in the front on a verified request and do no I/O; `locate` runs
in a worker and may ask the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from shared.media.attachments import Attachment, Source
from shared.media.networks.messages import NetworkMessage
from shared.media.networks.signatures import WebhookSignature
from shared.media.networks.webhooks import AccountPart, Credentials, WebhookRequest, WebhookResponse


class SettingKind(StrEnum):
    """What sort of value a setting takes."""

    SECRET = "secret"  # noqa: S105 (a kind, not a secret)
    IDENTIFIER = "identifier"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSetting:
    """One setting of a network, as operators give it for a distribution."""

    name: str
    description: str
    kind: SettingKind = SettingKind.SECRET
    pattern: re.Pattern[str] = re.compile(r"[\x21-\x7e]{16,512}")
    """What a value looks like in full; an address is checked besides."""
    default: str | None = None
    is_required: bool = True


def api_base_url(description: str, default: str) -> NetworkSetting:
    """Make the setting that names another server in place of the network's API."""
    return NetworkSetting(
        name="apiBaseUrl", description=description, kind=SettingKind.ADDRESS, default=default
    )


class Network(Protocol):
    """One messaging network."""

    name: str
    """The path segment and the word in a distribution's `networks`, such as `slack`."""
    title: str
    """What the network calls itself."""
    callback: str
    """Where, at the network, the address of the webhook goes."""
    settings: Sequence[NetworkSetting]
    """The settings it needs, and those that it may have."""
    signature: WebhookSignature
    """What proves that it sent a webhook."""

    def answer(self, request: WebhookRequest, credentials: Credentials) -> WebhookResponse | None:
        """Give the answer that a handshake, a ping or an interaction asks for; None for an empty 200."""

    def accounts(self, request: WebhookRequest) -> Sequence[AccountPart]:
        """Give a verified body by the account that it is for; several where a network puts those together."""

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Read the attachments of a verified request; none where it tells of something else."""

    def messages(self, request: WebhookRequest) -> Sequence[NetworkMessage]:
        """Read what people said in a verified request; not what the app said itself, nor what was changed later."""

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:
        """Find where the bytes are now. Raises the errors of `shared/media/errors.py` and `shared/egress/errors.py`."""


Ask = Callable[..., bytes]
"""Ask the network's API through the guarded fetcher: `ask(url, headers) -> body`, at most 1 MiB."""
