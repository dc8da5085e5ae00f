"""The interface of a messaging network's adapter: signatures, parsing of webhooks, and location of media.

`respond`, `accounts`, `attachments` and `messages` run in the web process on a verified request and do no I/O.
`locate` runs in a worker and may call the network's API.
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
    """The kind of a setting's value."""

    SECRET = "secret"  # noqa: S105 (a kind, not a secret)
    IDENTIFIER = "identifier"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSetting:
    """A setting of a network, which operators set for a distribution."""

    name: str
    description: str
    kind: SettingKind = SettingKind.SECRET
    # Require 16 characters, because a shorter secret could be guessed. Permit only printable characters, because the
    # secret may be sent in a header.
    pattern: re.Pattern[str] = re.compile(r"[\x21-\x7e]{16,512}")
    """Matches a valid value in full; an address has further checks."""
    default: str | None = None
    is_required: bool = True


def api_base_url(description: str, default: str) -> NetworkSetting:
    """Return the setting that names another server for the network's API."""
    return NetworkSetting(
        name="apiBaseUrl", description=description, kind=SettingKind.ADDRESS, default=default
    )


class Network(Protocol):
    """A messaging network."""

    name: str
    """The path segment and the name in a distribution's `networks`, such as `slack`."""
    title: str
    """The network's own name."""
    callback: str
    """The place in the network's own settings where an operator enters the URL of the webhook."""
    settings: Sequence[NetworkSetting]
    """The required and optional settings."""
    signature: WebhookSignature
    """How the network signs its webhooks."""

    def respond(self, request: WebhookRequest, credentials: Credentials) -> WebhookResponse | None:
        """Return the response that a handshake, ping or interaction requires; None for an empty 200."""

    def accounts(self, request: WebhookRequest) -> Sequence[AccountPart]:
        """Return a verified body split by account; several parts if the network combines accounts."""

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Return the attachments of a verified request; none if the request announces no attachments."""

    def messages(self, request: WebhookRequest) -> Sequence[NetworkMessage]:
        """Return the messages of persons in a verified request. The app's own messages and later edits are left out."""

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:
        """Return the present URL of the bytes, and the headers to request them.

        Raises the errors of `shared/media/errors.py` and `shared/egress/errors.py`.
        """


Ask = Callable[..., bytes]
"""Calls the network's API through the guarded client: `ask(url, headers) -> body`, at most 1 MiB."""
