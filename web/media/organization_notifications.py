"""Administer where an organization is notified, of its budgets for one, and replay what did not arrive."""

from uuid import UUID

from shared.deliveries import organization_endpoints
from shared.deliveries.errors import DeliveryNotDead, DeliveryNotFound
from shared.egress.errors import AddressRefused, SchemeRefused, UrlRefused
from web.administration import NO_STORE, ORGANIZATION, AdministrationRoutes
from web.calls import Answer, Call
from web.media import notification_schemas as schemas

ENDPOINT = f"{ORGANIZATION}/notification-endpoint"
NOTIFICATIONS = f"{ORGANIZATION}/notifications"
routes = AdministrationRoutes("notifications")


@routes.changes(
    "PUT",
    ENDPOINT,
    schemas.NewNotificationEndpoint,
    schemas.IssuedOrganizationEndpoint,
    SchemeRefused,
    UrlRefused,
    AddressRefused,
    summary="Replace the endpoint of an organization's notifications, with a new secret",
    description=(
        "The endpoint receives Standard Webhooks, such as `budget.share_reached`, in order, signed with the secret "
        "that is shown only now. What still waits goes to the new address too."
    ),
)
def put_organization_endpoint(call: Call, organization_id: UUID) -> Answer:
    by = call.actor
    body: schemas.NewNotificationEndpoint = call.read_body()
    with call.services.database.transaction() as session:
        issued = organization_endpoints.set_endpoint(
            session, call.services.settings, by=by, organization_id=organization_id, url=body.url
        )
    shown = schemas.IssuedOrganizationEndpoint.with_secret(
        issued.endpoint, webhook_secret=issued.webhook_secret.value
    )
    return Answer(body=shown, headers=NO_STORE)


@routes.administers(
    "GET",
    ENDPOINT,
    {200: schemas.OrganizationEndpointBody},
    summary="Get the endpoint of an organization's notifications",
)
def read_organization_endpoint(call: Call, organization_id: UUID) -> Answer:
    by = call.actor
    with call.services.database.transaction() as session:
        endpoint = organization_endpoints.get_endpoint(
            session, call.services.settings, by=by, organization_id=organization_id
        )
    return Answer(body=schemas.OrganizationEndpointBody.of(endpoint))


routes.resource(ENDPOINT, schemas.OrganizationEndpointBody).removes(
    organization_endpoints.remove_organization_endpoint,
    summary="Delete the endpoint of an organization's notifications; what waits is given up",
)


@routes.pages(
    NOTIFICATIONS,
    schemas.NotificationPage,
    schemas.NotificationQuery,
    summary="List an organization's notifications with their states",
)
def list_organization_notifications(call: Call, organization_id: UUID) -> Answer:
    by = call.actor
    with call.services.database.transaction() as session:
        page = organization_endpoints.list_notifications(
            session,
            by=by,
            organization_id=organization_id,
            state=call.query.delivery_state,
            **call.query.position,
        )
    return Answer(body=schemas.NotificationPage.of_deliveries(page))


@routes.administers(
    "POST",
    f"{NOTIFICATIONS}/<id:notification_id>/resend",
    {200: schemas.NotificationBody},
    DeliveryNotFound,
    DeliveryNotDead,
    summary="Replay a notification of an organization that was given up, under the id it had",
)
def resend_organization_notification(call: Call, organization_id: UUID, notification_id: UUID) -> Answer:
    by = call.actor
    with call.services.database.transaction() as session:
        resent = organization_endpoints.resend_notification(
            session, by=by, organization_id=organization_id, notification_id=notification_id
        )
    return Answer(body=schemas.NotificationBody.of_delivery(resent))
