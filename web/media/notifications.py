"""Administer where a distribution is told what became of its media, and have told again what did not arrive."""

from uuid import UUID

from shared.egress.errors import AddressRefused, SchemeRefused, UrlRefused
from shared.media.notifications import notification_endpoints
from web.framework.administration import AdministrationRoutes
from web.framework.calls import JsonResponse, RequestContext
from web.media import notification_schemas as schemas
from web.media.notification_routes import declare_list, declare_replay, declare_resend

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
    summary="Replace the endpoint of a distribution's notifications, or enable it again",
    description=(
        "The endpoint receives Standard Webhooks, signed with the distribution's webhook secret: "
        "`media.import.stored`, `media.import.failed` and `file.expired`. What still waits goes to "
        "the new address too."
    ),
)
def put_notification_endpoint(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    body: schemas.NewNotificationEndpoint = call.read_body()
    actor = call.actor
    with call.services.database.transaction() as session:
        endpoint = notification_endpoints.set_endpoint(
            session, call.services.settings, actor=actor, distribution_id=distribution_id, url=body.url
        )
    return JsonResponse(body=schemas.NotificationEndpointBody.of(endpoint))


@routes.administers(
    "GET",
    ENDPOINT,
    {200: schemas.NotificationEndpointBody},
    summary="Get the endpoint of a distribution's notifications",
)
def read_notification_endpoint(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        endpoint = notification_endpoints.get_endpoint(
            session, call.services.settings, actor=actor, distribution_id=distribution_id
        )
    return JsonResponse(body=schemas.NotificationEndpointBody.of(endpoint))


@routes.administers(
    "DELETE",
    ENDPOINT,
    {204: None},
    summary="Delete the endpoint of notifications; what waits is given up, and can be replayed to the next one",
)
def remove_notification_endpoint(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        notification_endpoints.remove_endpoint(session, actor=actor, distribution_id=distribution_id)
    return JsonResponse(status=204)


declare_list(
    routes,
    NOTIFICATIONS,
    notification_endpoints.list_notifications,
    name="list_notifications",
    summary="List a distribution's notifications with their states",
)
declare_resend(
    routes,
    NOTIFICATIONS,
    notification_endpoints.resend_notification,
    name="resend_notification",
    summary="Send a notification now that waits or was given up, under the id it had",
)
declare_replay(
    routes,
    NOTIFICATIONS,
    notification_endpoints.replay_notifications,
    name="replay_notifications",
    summary="Replay a distribution's notifications that did not arrive, in order, up to 1,000",
    description=(
        "From a time or after a notification; also what happened while the endpoint was disabled. Each keeps its id, "
        "and none is sent that has arrived. What was missed or given up is kept for 30 days."
    ),
)


@routes.administers(
    "POST",
    f"{NOTIFICATIONS}/resend-dead",
    {200: schemas.ResentNotifications},
    summary="Replay the notifications of a distribution that were given up, up to 1,000, oldest first",
)
def resend_dead_notifications(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        count = notification_endpoints.resend_dead_notifications(
            session, actor=actor, distribution_id=distribution_id
        )
    return JsonResponse(body=schemas.ResentNotifications(count=count))
