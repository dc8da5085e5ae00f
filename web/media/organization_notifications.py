"""Routes that administer an organization's notification endpoint and replay its notifications."""

from uuid import UUID

from shared.deliveries import organization_endpoints
from shared.egress.errors import AddressRefused, SchemeRefused, UrlRefused
from web.framework.administration import NO_STORE, ORGANIZATION, AdministrationRoutes
from web.framework.calls import JsonResponse, RequestContext
from web.media import notification_schemas as schemas
from web.media.notification_routes import declare_list, declare_replay, declare_resend

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
        "that is shown only now. Waiting notifications go to the new address too."
    ),
)
def put_organization_endpoint(call: RequestContext, organization_id: UUID) -> JsonResponse:
    body: schemas.NewNotificationEndpoint = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        issued = organization_endpoints.set_endpoint(
            session, call.services.settings, actor=actor, organization_id=organization_id, url=body.url
        )
    shown = schemas.IssuedOrganizationEndpoint.with_secret(
        issued.endpoint, webhook_secret=issued.webhook_secret.value
    )
    return JsonResponse(body=shown, headers=NO_STORE)


@routes.administers(
    "GET",
    ENDPOINT,
    {200: schemas.OrganizationEndpointBody},
    summary="Get the endpoint of an organization's notifications",
)
def read_organization_endpoint(call: RequestContext, organization_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        endpoint = organization_endpoints.get_endpoint(
            session, call.services.settings, actor=actor, organization_id=organization_id
        )
    return JsonResponse(body=schemas.OrganizationEndpointBody.of(endpoint))


routes.resource(ENDPOINT, schemas.OrganizationEndpointBody).removes(
    organization_endpoints.remove_organization_endpoint,
    summary="Delete the endpoint of an organization's notifications; waiting notifications become dead",
)
declare_list(
    routes,
    NOTIFICATIONS,
    organization_endpoints.list_notifications,
    name="list_organization_notifications",
    summary="List an organization's notifications with their states",
)
declare_resend(
    routes,
    NOTIFICATIONS,
    organization_endpoints.resend_notification,
    name="resend_organization_notification",
    summary="Send a waiting or dead notification of an organization now, under its id",
)
declare_replay(
    routes,
    NOTIFICATIONS,
    organization_endpoints.replay_notifications,
    name="replay_organization_notifications",
    summary="Replay an organization's undelivered notifications, in order, up to 1,000",
    description="From a time or after a notification, including those missed while the endpoint was disabled.",
)
