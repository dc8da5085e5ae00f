"""Sign notifications as Standard Webhooks (version 1.0.0) and say where they go, at every attempt anew.

The signature is HMAC-SHA256 over `id.timestamp.body` with the distribution's webhook secret. While a replaced secret
is still good, both sign, so that the receiver may change over whenever it likes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, case, func, select, update

from shared.database import Session
from shared.deliveries.channels import Address, Message
from shared.identity.encryption import Encryption
from shared.identity.tables import distributions
from shared.media.notification_tables import notification_endpoints

SECRET_PREFIX = "whsec_"  # noqa: S105 (a prefix, not a secret)


class DistributionChannel:
    """Notifications to the endpoints of distributions."""

    def __init__(self, encryption: Encryption) -> None:
        """Take the keys of endpoints and webhook secrets."""
        self._encryption = encryption

    def find_address(self, session: Session, message: Message) -> Address | None:
        """Give the endpoint, and the three headers of the signature; None when there is none, or it is disabled."""
        row = session.execute(_ENDPOINT, {"distribution": message.destination_id}).one_or_none()
        if row is None:
            return None
        secrets = [
            self._decrypt(secret) for secret in (row.secret, row.previous_secret) if secret is not None
        ]
        timestamp = int(time.time())
        headers = {
            "webhook-id": str(message.id),
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(
                secrets, message_id=str(message.id), timestamp=timestamp, body=message.body
            ),
        }
        return Address(url=self._decrypt(row.url_encrypted), headers=headers)

    def disable(self, session: Session, destination_id: UUID, address: Address) -> bool:
        """Disable the endpoint until it is named again; False when another has been named meanwhile, or none is."""
        row = session.execute(_HELD, {"distribution": destination_id}).one_or_none()
        if row is None or self._decrypt(row.url_encrypted) != address.url:
            return False
        session.execute(_DISABLE, {"distribution": destination_id})
        return True

    def _decrypt(self, token: Any) -> str:
        return self._encryption.decrypt(bytes(token))


def sign(secrets: Sequence[str], *, message_id: str, timestamp: int, body: bytes) -> str:
    """Give the value of `webhook-signature`: one `v1` signature for each secret."""
    signed = f"{message_id}.{timestamp}.".encode() + body
    return " ".join(f"v1,{_signature(secret, signed)}" for secret in secrets)


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


_OF_DISTRIBUTION = notification_endpoints.c.distribution_id == bindparam("distribution")
_HELD = select(notification_endpoints.c.url_encrypted).where(_OF_DISTRIBUTION).with_for_update()
_DISABLE = (
    update(notification_endpoints)
    .where(_OF_DISTRIBUTION, notification_endpoints.c.disabled_at.is_(None))
    .values(disabled_at=func.now())
)
_ENDPOINT = (
    select(
        notification_endpoints.c.url_encrypted,
        distributions.c.webhook_secret_encrypted.label("secret"),
        case(
            (
                distributions.c.previous_webhook_secret_expires_at > func.now(),
                distributions.c.previous_webhook_secret_encrypted,
            ),
        ).label("previous_secret"),
    )
    .join(distributions, distributions.c.id == notification_endpoints.c.distribution_id)
    .where(
        _OF_DISTRIBUTION,
        notification_endpoints.c.disabled_at.is_(None),
        distributions.c.disabled_at.is_(None),
    )
)
