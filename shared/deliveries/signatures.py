"""The headers of Standard Webhooks (version 1.0.0). They contain the attempt's time, so each attempt has new ones."""

import base64
from collections.abc import Sequence

from shared.deliveries.channels import Message
from shared.identity.credentials.webhook_secrets import sign


def webhook_headers(message: Message, secrets: Sequence[str]) -> dict[str, str]:
    """Return the message's id, the attempt's time and one signature for each secret (`whsec_…`)."""
    # Round once: the signature and the header must contain the same text.
    timestamp = str(int(message.attempted_at.timestamp()))
    headers = {"webhook-id": str(message.id), "webhook-timestamp": timestamp}
    if message.sequence is not None:
        headers["webhook-sequence"] = str(message.sequence)
    if secrets:
        text = f"{message.id}.{timestamp}.".encode() + message.body
        signatures = (base64.b64encode(sign(secret, text)).decode() for secret in secrets)
        headers["webhook-signature"] = " ".join(f"v1,{signature}" for signature in signatures)
    return headers
