"""A webhook as it arrived, what it is verified with, and what its network expects to hear."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.errors import DomainError, Kind

Payload = Mapping[str, Any]
"""A network's JSON, whose shape is not trusted (`payloads.py`)."""
Credentials = Mapping[str, str]
"""A network's decrypted settings for one distribution, by name; a replaced signing setting is `previous(name)`."""


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
class WebhookResponse:
    """What the network expects to hear, where an empty 200 will not do."""

    body: bytes
    media_type: str
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPart:
    """What a webhook tells of one account of an app: a workspace, a number; None where it names none."""

    account: str | None
    request: WebhookRequest


def previous(name: str) -> str:
    """Name the credential that a setting replaced and that is still good."""
    return f"{name}.previous"
