"""Post notifications to distributions' endpoints, signed with the distribution's webhook secrets.

While a replaced secret is valid, both secrets sign, so that a receiver may switch at any time.
"""

from shared.deliveries.endpoints import Complete, EndpointChannel, Endpoints
from shared.encryption import Encryption
from shared.identity.credentials.webhook_secrets import list_webhook_secrets
from shared.media.notifications.notification_tables import notification_endpoints

ENDPOINTS = Endpoints(notification_endpoints, notification_endpoints.c.distribution_id)


class DistributionChannel(EndpointChannel):
    """The channel to distributions' endpoints."""

    def __init__(self, encryption: Encryption, complete: Complete) -> None:
        super().__init__(encryption, ENDPOINTS, list_webhook_secrets, complete)
