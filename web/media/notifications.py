"""Routes that administer a distribution's notification endpoint and replay its notifications."""

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
        "`media.import.stored`, `media.import.failed` and `file.expired`. Waiting notifications go to "
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
    summary="Delete the endpoint of notifications; waiting notifications become dead and can be replayed",
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
    summary="Send a waiting or dead notification now, under its id",
)
declare_replay(
    routes,
    NOTIFICATIONS,
    notification_endpoints.replay_notifications,
    name="replay_notifications",
    summary="Replay a distribution's undelivered notifications, in order, up to 1,000",
    description=(
        "From a time or after a notification, including those missed while the endpoint was disabled. Each keeps its "
        "id; delivered ones are not sent again. Missed and dead notifications are kept for 30 days."
    ),
)


@routes.administers(
    "POST",
    f"{NOTIFICATIONS}/resend-dead",
    {200: schemas.ResentNotifications},
    summary="Replay a distribution's dead notifications, up to 1,000, oldest first",
)
def resend_dead_notifications(call: RequestContext, distribution_id: UUID) -> JsonResponse:
    actor = call.actor
    with call.services.database.transaction() as session:
        count = notification_endpoints.resend_dead_notifications(
            session, actor=actor, distribution_id=distribution_id
        )
    return JsonResponse(body=schemas.ResentNotifications(count=count))
