"""What a messaging network is to us: how it signs, how its webhooks read, and where its media is.

One module beside this one per network. `verify`, `handshake` and `attachments` run in the front and touch nothing
outside; `locate` runs in a worker and may ask the network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from shared.errors import DomainError, Kind
from shared.media.attachments import Attachment, Source

Credentials = Mapping[str, str]
"""A network's settings for one distribution by name, such as `signingSecret` and `botToken`, decrypted."""


class SignatureInvalid(DomainError):
    """The webhook's signature is missing, wrong or too old."""

    code = "signature_invalid"
    kind = Kind.UNAUTHENTICATED


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

    name: str
    """The path segment and the word in a distribution's `networks`, such as `slack`."""
    settings: Sequence[str]
    """Names of the settings it needs."""

    def verify(self, request: WebhookRequest, credentials: Credentials) -> None:
        """Raise SignatureInvalid unless the network signed this request, and lately."""

    def answer(self, request: WebhookRequest, credentials: Credentials) -> WebhookAnswer | None:
        """Give the answer that a handshake, a ping or an interaction asks for; None for an empty 200."""

    def attachments(self, request: WebhookRequest) -> Sequence[Attachment]:
        """Read the attachments of a verified request; none where it tells of something else."""

    def locate(self, attachment: Attachment, credentials: Credentials, ask: Ask) -> Source:
        """Find where the bytes are now. Raises the errors of `shared/media/errors.py`."""


Ask = Callable[..., bytes]
"""Ask the network's API through the guarded fetcher: `ask(url, headers) -> body`, at most 1 MiB."""
