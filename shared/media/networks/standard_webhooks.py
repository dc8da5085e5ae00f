"""Standard Webhooks (version 1.0.0): how a distribution signs its pushes with its webhook secret."""

import base64
import binascii
import hmac
import re
from collections.abc import Sequence
from dataclasses import replace

from shared.identity.credentials.webhook_secrets import sign
from shared.media.networks.signatures import BODY, Part, Timestamp, WebhookSignature
from shared.media.networks.webhooks import Credentials, SignatureInvalid, WebhookRequest, previous

MAXIMUM_SIGNATURES = 16
SETTING = "webhookSecret"

_ID = re.compile(r"[\x21-\x7e]{1,255}")
_VERSION = "v1,"


class _Signatures:
    """One or more base64 HMAC-SHA256 after `v1,`: several during a rotation of secrets."""

    name = "HMAC-SHA256 in base64 after `v1,`"

    def is_valid(self, sent: str, secret: str, text: bytes) -> bool:
        """Compare with every signature, so that the time does not reveal which one matches."""
        candidates = sent.split(" ")
        # Bounded, because each candidate costs a comparison.
        if len(candidates) > MAXIMUM_SIGNATURES:
            return False
        expected = sign(secret, text)
        signatures = [_decoded(at.removeprefix(_VERSION)) for at in candidates if at.startswith(_VERSION)]
        equal = [hmac.compare_digest(expected, one) for one in signatures]
        return any(equal)


def _message_id(request: WebhookRequest) -> Sequence[bytes]:
    sent = request.headers.get("webhook-id", "")
    if not _ID.fullmatch(sent):
        raise SignatureInvalid
    return [sent.encode()]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error):
        return b""


def standard_names(request: WebhookRequest) -> WebhookRequest:
    """Return the request with the headers' former names (`svix-id` …) replaced by the standard's."""
    # The standard's names win; a request with both must not be read by the other ones.
    if any(name.startswith("webhook-") for name in request.headers):
        return request
    named = {re.sub(r"^svix-", "webhook-", name): value for name, value in request.headers.items()}
    return replace(request, headers=named)


STANDARD_WEBHOOKS = WebhookSignature(
    header="webhook-signature",
    setting=SETTING,
    algorithm=_Signatures(),
    signed=(
        Part(name="`webhook-id`", forms=_message_id),
        b".",
        Timestamp(header="webhook-timestamp", window_seconds=300),
        b".",
        BODY,
    ),
)


def webhook_credentials(secrets: Sequence[str]) -> Credentials:
    """Return a distribution's valid webhook secrets, newest first, as credentials."""
    return dict(zip((SETTING, previous(SETTING)), secrets, strict=False))
