"""Declare the routes that list, resend and replay notifications.

Distributions and organizations share these routes.
"""

from typing import Any

from shared.deliveries.errors import DeliveryNotDead, DeliveryNotFound
from web.framework.administration import Act, AdministrationRoutes, administer
from web.framework.calls import JsonResponse, RequestContext
from web.media.notification_schemas import (
    NotificationBody,
    NotificationPage,
    NotificationQuery,
    ReplayedNotifications,
    ReplayRequest,
)


def declare_list(routes: AdministrationRoutes, path: str, act: Act, **texts: str) -> None:
    """Declare the route that lists notifications at `path`."""

    def handle(call: RequestContext, **ids: Any) -> JsonResponse:
        page = administer(call, act, **ids, state=call.query.delivery_state, **call.query.position)
        return JsonResponse(body=NotificationPage.of_deliveries(page))

    routes.pages(path, NotificationPage, NotificationQuery, **texts)(handle)


def declare_resend(routes: AdministrationRoutes, path: str, act: Act, **texts: str) -> None:
    """Declare the route that sends one waiting or dead notification now."""

    def handle(call: RequestContext, **ids: Any) -> JsonResponse:
        return JsonResponse(body=NotificationBody.of_delivery(administer(call, act, **ids)))

    path = f"{path}/<id:notification_id>/resend"
    routes.administers("POST", path, {200: NotificationBody}, DeliveryNotFound, DeliveryNotDead, **texts)(
        handle
    )


def declare_replay(routes: AdministrationRoutes, path: str, act: Act, **texts: str) -> None:
    """Declare the route that replays notifications that were not delivered."""

    def handle(call: RequestContext, **ids: Any) -> JsonResponse:
        request: ReplayRequest = call.read_body()
        actor = call.actor
        with call.services.database.transaction() as session:
            replayed = act(session, actor=actor, **ids, since=request.since, cursor=request.cursor)
        return JsonResponse(
            body=ReplayedNotifications(count=replayed.count, next_cursor=replayed.next_cursor)
        )

    routes.administers("POST", f"{path}/replay", {200: ReplayedNotifications}, body=ReplayRequest, **texts)(
        handle
    )
