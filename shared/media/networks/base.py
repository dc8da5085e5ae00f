"""What a messaging network is to us: how it signs, how its webhooks read, and where its media is.

One module beside this one per network. `verify`, `answer` and `attachments` run in the front and touch nothing
outside; `locate` runs in a worker and may ask the network.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from shared.errors import DomainError, Kind
from shared.media.attachments import Attachment, Source

Credentials = Mapping[str, str]
"""A network's settings for one distribution by name, such as `signingSecret` and `botToken`, decrypted.

A setting that signs and was replaced a while ago is there too, under `previous(name)`.
"""


class SignatureInvalid(DomainError):
    """The webhook's signature is missing, wrong or too old."""

    code = "signature_invalid"
    kind = Kind.UNAUTHENTICATED


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
    signs: bool = False
    """Whether webhooks are verified with it: the value it replaces stays good for a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A webhook as it arrived; `public_url` is the address its network was given, with the query."""

    method: str
    public_url: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    received_at: float
    """Seconds since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookAnswer:
    """What the network expects to hear, where an empty 200 will not do."""

    body: bytes
    media_type: str
    status: int = 200


class Network(Protocol):
    """One messaging network."""

    @property
    def name(self) -> str:
        """The path segment and the word in a distribution's `networks`, such as `slack`."""

    @property
    def settings(self) -> Sequence[NetworkSetting]:
        """The settings it needs, and those that it may have."""

    def verify(self, request: WebhookRequest, credentials: Credentials) -> None:
        """Raise SignatureInvalid unless the network signed this request, and lately; and nothing else ever."""

    def answer(self, request: WebhookRequest, credentials: Credentials) -> WebhookAnswer | None:
        """Give the answer that a handshake, a ping or an interaction asks for; None for an empty 200."""

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Read the attachments of a verified request; none where it tells of something else."""

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:
        """Find where the bytes are now. Raises the errors of `shared/media/errors.py` and `shared/egress/errors.py`."""


Ask = Callable[..., bytes]
"""Ask the network's API through the guarded fetcher: `ask(url, headers) -> body`, at most 1 MiB."""


def previous(name: str) -> str:
    """Name the credential that a setting replaced and that is still good."""
    return f"{name}.previous"
