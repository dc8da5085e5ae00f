"""Sign notifications as Standard Webhooks (version 1.0.0) and find their endpoint, at every attempt anew.

While a replaced secret is valid both sign, so that receivers may change over at any time.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

from sqlalchemy import bindparam, func, select, update

from shared.database import Session
from shared.deliveries.channels import Address, Message
from shared.deliveries.signatures import webhook_headers
from shared.encryption import Encryption
from shared.identity.webhook_secrets import list_webhook_secrets
from shared.media.notification_tables import notification_endpoints

Complete = Callable[[Session, bytes], bytes]
"""Puts into a body what no row may hold, such as links to files."""


class DistributionChannel:
    """Notifications to the endpoints of distributions."""

    def __init__(self, encryption: Encryption, complete: Complete) -> None:
        self._encryption = encryption
        self._complete = complete

    def find_address(self, session: Session, message: Message) -> Address | None:
        """Give the endpoint, and the three headers of the signature; None when there is none, or it is disabled."""
        endpoint = session.execute(_ENDPOINT, {"distribution": message.destination_id}).one_or_none()
        secrets = list_webhook_secrets(session, self._encryption, message.destination_id)
        if endpoint is None or not secrets:
            return None
        body = self._complete(session, message.body)
        headers = webhook_headers(replace(message, body=body), secrets)
        return Address(url=self._decrypt(endpoint.url_encrypted), headers=headers, body=body)

    def disable(self, session: Session, destination_id: UUID, address: Address) -> bool:
        """Disable the endpoint until it is named again; False when another has been named meanwhile, or none is."""
        row = session.execute(_HELD, {"distribution": destination_id}).one_or_none()
        if row is None or self._decrypt(row.url_encrypted) != address.url:
            return False
        session.execute(_DISABLE, {"distribution": destination_id})
        return True

    def _decrypt(self, token: Any) -> str:
        return self._encryption.decrypt(bytes(token))


_OF_DISTRIBUTION = notification_endpoints.c.distribution_id == bindparam("distribution")
_ENDPOINT = select(notification_endpoints.c.url_encrypted).where(
    _OF_DISTRIBUTION, notification_endpoints.c.disabled_at.is_(None)
)
_HELD = select(notification_endpoints.c.url_encrypted).where(_OF_DISTRIBUTION).with_for_update()
_DISABLE = (
    update(notification_endpoints)
    .where(_OF_DISTRIBUTION, notification_endpoints.c.disabled_at.is_(None))
    .values(disabled_at=func.now())
)
