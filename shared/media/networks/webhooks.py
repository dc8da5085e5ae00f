"""A received webhook, the credentials that verify it, and the response that its network expects."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shared.errors import DomainError, Kind

Payload = Mapping[str, Any]
"""A network's JSON, in a shape that is not trusted (`payloads.py`)."""
Credentials = Mapping[str, str]
"""A distribution's decrypted settings for one network, by name; `previous(name)` is a replaced value."""


class SignatureInvalid(DomainError):
    """The signature is missing, wrong or too old."""

    code = "signature_invalid"
    kind = Kind.UNAUTHENTICATED


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRequest:
    """A received webhook; `public_url` is the address its network was given, with the query."""

    method: str
    public_url: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes
    received_at: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookResponse:
    """The response that the network expects, if an empty 200 is not enough."""

    body: bytes
    media_type: str
    status: int = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountPart:
    """The part of a webhook for one account of an app (a workspace, a number); None if it names none."""

    account: str | None
    request: WebhookRequest


def previous(name: str) -> str:
    """Return the name of the credential with a setting's replaced value."""
    return f"{name}.previous"
