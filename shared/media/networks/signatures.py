"""Verify webhook signatures. Each network declares its form of signature, and `verify` checks a request against it.

The OpenAPI document, the README's table and the tests derive from the declaration. A signed timestamp always has a
replay window. Headers may be hostile, so the functions of this module raise no error except SignatureInvalid.
"""

import base64
import hmac
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from shared.media.networks.webhooks import Credentials, SignatureInvalid, WebhookRequest, previous

_SECONDS = re.compile(r"[0-9]{1,12}", re.ASCII)
_ED25519 = re.compile(r"[0-9a-fA-F]{128}", re.ASCII)


class Subject(StrEnum):
    """The property of a request that a signed part protects."""

    BODY = "body"
    ADDRESS = "address"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part of the signed text."""

    name: str
    """Its name in documents."""
    subject: Subject | None = None
    forms: Callable[[WebhookRequest], Sequence[bytes]]
    """Returns the part, in every form that the network may sign. May raise SignatureInvalid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timestamp:
    """The signed time of sending in Unix seconds, as text of its header. It is valid within the replay window."""

    header: str
    window_seconds: int

    def forms(self, request: WebhookRequest) -> Sequence[bytes]:
        """Return the timestamp. Raises SignatureInvalid if it is before or after the replay window."""
        sent = request.headers.get(self.header.lower(), "")
        if not _SECONDS.fullmatch(sent) or abs(request.received_at - int(sent)) > self.window_seconds:
            raise SignatureInvalid
        return [sent.encode()]


BODY = Part(name="the body", subject=Subject.BODY, forms=lambda request: [request.body])


class Algorithm(Protocol):
    """An algorithm that signs a text with a secret."""

    @property
    def name(self) -> str:
        """Its name in documents."""

    def is_valid(self, sent: str, secret: str, text: bytes) -> bool:
        """Return, in constant time, whether a header's value is the signature of a text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hmac:
    """An HMAC, in hexadecimal or base64, after a prefix."""

    digest: str
    in_base64: bool = False
    prefix: str = ""

    @property
    def name(self) -> str:
        """Digest, encoding and prefix."""
        encoding = "base64" if self.in_base64 else "hexadecimal"
        return f"HMAC-{self.digest.upper()} in {encoding}" + (
            f" after `{self.prefix}`" if self.prefix else ""
        )

    def is_valid(self, sent: str, secret: str, text: bytes) -> bool:
        """Compare with the HMAC of the text."""
        made = hmac.digest(secret.encode(), text, self.digest)
        return _is_equal(
            sent, self.prefix + (base64.b64encode(made).decode() if self.in_base64 else made.hex())
        )


@dataclass(frozen=True, slots=True)
class Ed25519:
    """An Ed25519 signature in hexadecimal; the secret is the public key."""

    name: str = "Ed25519 in hexadecimal"

    def is_valid(self, sent: str, secret: str, text: bytes) -> bool:
        """Verify with the public key."""
        # Check the format first, because bytes.fromhex() would also accept spaces.
        if not _ED25519.fullmatch(sent):
            return False
        try:
            Ed25519PublicKey.from_public_bytes(bytes.fromhex(secret)).verify(bytes.fromhex(sent), text)
        except (InvalidSignature, ValueError):
            return False
        return True


@dataclass(frozen=True, slots=True)
class SharedSecret:
    """The algorithm of a network that sends the secret itself in a header instead of a signature."""

    name: str = "the secret itself"

    def is_valid(self, sent: str, secret: str, text: bytes) -> bool:  # noqa: ARG002 (nothing is signed)
        """Compare with the secret."""
        return _is_equal(sent, secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """A GET request by which a network checks the owner of a webhook's URL; it has a secret in a query parameter."""

    parameter: str
    setting: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSignature:
    """The form in which a network signs its webhooks."""

    header: str
    setting: str
    """The setting with the secret; a replaced value stays valid for the overlap."""
    algorithm: Algorithm
    signed: Sequence[bytes | Part | Timestamp]
    """The parts of the signed text, in order; bytes stand for themselves."""
    handshake: Handshake | None = None

    @property
    def timestamp(self) -> Timestamp | None:
        """The signed time; None if the network signs none (a replay is then found by the message's id)."""
        return next((part for part in self.signed if isinstance(part, Timestamp)), None)

    @property
    def settings(self) -> frozenset[str]:
        """The settings that verify requests."""
        return frozenset({self.setting} | ({self.handshake.setting} if self.handshake else set()))

    def describe(self) -> str:
        """Return how a request is signed, over what, and its replay window; in Markdown."""
        parts = " + ".join(_name(part) for part in self.signed)
        over = f", over {parts}" if parts else ""
        good = f"refused after {self.timestamp.window_seconds} seconds" if self.timestamp else "no time"
        return f"{self.algorithm.name}{over}; {good}"

    def covers(self, subject: Subject) -> bool:
        """Return whether a change of this property makes the signature invalid."""
        return any(isinstance(part, Part) and part.subject is subject for part in self.signed)


def verify(signature: WebhookSignature, request: WebhookRequest, credentials: Credentials) -> None:
    """Raise SignatureInvalid unless the network signed this request within the replay window. Raises nothing else."""
    if request.method == "GET" and signature.handshake is not None:
        token = request.query.get(signature.handshake.parameter, "")
        require_match(token, accepted(credentials, signature.handshake.setting))
        return
    # Try each combination of forms, because Twilio signs the URL with or without the port.
    texts = [b"".join(forms) for forms in product(*(_forms(part, request) for part in signature.signed))]
    sent = request.headers.get(signature.header.lower(), "")
    secrets = accepted(credentials, signature.setting)
    if not any(signature.algorithm.is_valid(sent, secret, text) for secret in secrets for text in texts):
        raise SignatureInvalid


def check_signed_headers(signature: WebhookSignature, request: WebhookRequest) -> None:
    """Raise SignatureInvalid for headers that cannot be valid, before the body is read."""
    if signature.header.lower() not in request.headers:
        raise SignatureInvalid
    for part in signature.signed:
        # Check all parts except the body, which is not read yet.
        if part is not BODY:
            _forms(part, request)


def accepted(credentials: Credentials, name: str) -> Sequence[str]:
    """Return the valid values of a signing setting: the current one and, during the overlap, the replaced one."""
    values = (credentials.get(name), credentials.get(previous(name)))
    return [value for value in values if value]


def require_match(sent: str, expected: Sequence[str]) -> None:
    """Raise SignatureInvalid unless the text equals one of the expected ones, compared in constant time."""
    if not any(_is_equal(sent, one) for one in expected):
        raise SignatureInvalid


def _name(part: bytes | Part | Timestamp) -> str:
    if isinstance(part, bytes):
        return f"`{part.decode().encode('unicode_escape').decode()}`"
    return f"`{part.header}`" if isinstance(part, Timestamp) else part.name


def _forms(part: bytes | Part | Timestamp, request: WebhookRequest) -> Sequence[bytes]:
    return [part] if isinstance(part, bytes) else part.forms(request)


def _is_equal(sent: str, expected: str) -> bool:
    # Headers are decoded from Latin-1 or WSGI strings, which may hold lone surrogates.
    return hmac.compare_digest(sent.encode("utf-8", "surrogatepass"), expected.encode())
