"""Administer where a distribution is told what became of its media, and have told again what did not arrive."""

from __future__ import annotations

from uuid import UUID

from shared.deliveries.errors import DeliveryNotDead, DeliveryNotFound
from shared.egress.errors import AddressRefused, SchemeRefused, UrlRefused
from shared.media import notification_endpoints
from web.administration import AdministrationRoutes
from web.calls import Answer, Call
from web.media import notification_schemas as schemas

ENDPOINT = "/distributions/<id:distribution_id>/notification-endpoint"
NOTIFICATIONS = "/distributions/<id:distribution_id>/notifications"
routes = AdministrationRoutes("notifications")


@routes.changes(
    "PUT",
    ENDPOINT,
    schemas.NewNotificationEndpoint,
    schemas.NotificationEndpointBody,
    SchemeRefused,
    UrlRefused,
    AddressRefused,
)
def put_notification_endpoint(call: Call, distribution_id: UUID) -> Answer:
    """Replace the endpoint of a distribution's notifications, or enable it again.

    The endpoint receives Standard Webhooks, signed with the distribution's webhook secret: `media.import.stored`,
    `media.import.failed` and `file.expired`. What still waits goes to the new address too.
    """
    by = call.actor
    body: schemas.NewNotificationEndpoint = call.read_body()
    with call.services.database.transaction() as session:
        endpoint = notification_endpoints.set_endpoint(
            session, call.services.settings, by=by, distribution_id=distribution_id, url=body.url
        )
    return Answer(body=schemas.NotificationEndpointBody.of(endpoint))


@routes.reads(ENDPOINT, schemas.NotificationEndpointBody)
def read_notification_endpoint(call: Call, distribution_id: UUID) -> Answer:
    """Get the endpoint of a distribution's notifications."""
    by = call.actor
    with call.services.database.transaction() as session:
        endpoint = notification_endpoints.get_endpoint(
            session, call.services.settings, by=by, distribution_id=distribution_id
        )
    return Answer(body=schemas.NotificationEndpointBody.of(endpoint))


@routes.removes(ENDPOINT)
def remove_notification_endpoint(call: Call, distribution_id: UUID) -> Answer:
    """Delete the endpoint of notifications; what waits is given up, and can be replayed to the next one."""
    by = call.actor
    with call.services.database.transaction() as session:
        notification_endpoints.remove_endpoint(session, by=by, distribution_id=distribution_id)
    return Answer(status=204)


@routes.lists(NOTIFICATIONS, schemas.NotificationPage, schemas.NotificationQuery)
def list_notifications(call: Call, distribution_id: UUID) -> Answer:
    """List a distribution's notifications with their states."""
    by = call.actor
    with call.services.database.transaction() as session:
        page = notification_endpoints.list_notifications(
            session,
            by=by,
            distribution_id=distribution_id,
            state=call.query.delivery_state,
            **call.query.position,
        )
    return Answer(body=schemas.NotificationPage.of_deliveries(page))


@routes.acts(
    f"{NOTIFICATIONS}/<id:notification_id>/resend",
    schemas.NotificationBody,
    DeliveryNotFound,
    DeliveryNotDead,
)
def resend_notification(call: Call, distribution_id: UUID, notification_id: UUID) -> Answer:
    """Replay a notification that was given up, under the id it had."""
    by = call.actor
    with call.services.database.transaction() as session:
        resent = notification_endpoints.resend_notification(
            session, by=by, distribution_id=distribution_id, notification_id=notification_id
        )
    return Answer(body=schemas.NotificationBody.of_delivery(resent))


@routes.acts(f"{NOTIFICATIONS}/resend-dead", schemas.ResentNotifications)
def resend_dead_notifications(call: Call, distribution_id: UUID) -> Answer:
    """Replay every notification of a distribution that was given up."""
    by = call.actor
    with call.services.database.transaction() as session:
        count = notification_endpoints.resend_dead_notifications(
            session, by=by, distribution_id=distribution_id
        )
    return Answer(body=schemas.ResentNotifications(count=count))
