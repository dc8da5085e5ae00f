"""The pages of distributions: their imports, notifications and secrets.

The console calls distributions channels.
"""

from typing import Literal
from uuid import UUID

from flask import Response

from shared.deliveries.outbox import DeliveryState
from shared.identity.access.permissions import Permission
from shared.identity.directory.distributions import (
    disable_distribution,
    enable_distribution,
    get_distribution,
    list_distributions,
    rotate_distribution_token,
    rotate_webhook_secret,
)
from shared.media.importing.imports import ImportState, list_imports
from shared.media.importing.retries import MAX_RETRIED_IMPORTS, retry_import, retry_imports
from shared.media.notifications.notification_endpoints import (
    list_notifications,
    replay_notifications,
    resend_dead_notifications,
    resend_notification,
)
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import invalid_field, read_day, require
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.queries import CursorQuery

routes = ConsoleRoutes("distributions")

PAGE = "/console/distributions"
_STATES = tuple(state.value for state in ImportState)
_RETRYABLE = (ImportState.FAILED.value, ImportState.HELD.value)
_DELIVERY_STATES = tuple(state.value for state in DeliveryState)
_SHOWN_NOTIFICATIONS = 20


class ImportsQuery(CursorQuery):
    """The filters of imports and of notifications, by state."""

    state: Literal["", "Queued", "Fetching", "Held", "Stored", "Failed"] = ""
    notifications: Literal["", "Waiting", "Sending", "Delivered", "Dead"] = ""


@routes.page(
    "/distributions",
    title="Channels",
    permission=Permission.ORGANIZATION_READ,
    navigation=Group.STORAGE,
    summary="List distributions",
    query=CursorQuery,
)
def show_distributions(context: PageContext) -> Response:
    with context.services.database.autocommit() as session:
        listed = list_distributions(
            session,
            actor=context.actor,
            organization_id=context.organization_id,
            **context.call.query.position,
        )
        labels = context.labels(
            session, [at for one in listed.items for at in (one.principal_identity_id, one.deployment_id)]
        )
    return context.render("distributions.html", listed=listed, labels=labels)


@routes.page(
    "/distributions/<id:distribution_id>",
    title="Channel",
    permission=Permission.ORGANIZATION_READ,
    navigation="/distributions",
    summary="Show a distribution with its imports and notifications",
    query=ImportsQuery,
)
def show_distribution(context: PageContext, distribution_id: UUID) -> Response:
    query: ImportsQuery = context.call.query
    with context.services.database.autocommit() as session:
        distribution = get_distribution(session, actor=context.actor, distribution_id=distribution_id)
        # get_distribution() has authorized the reader. list_imports() does not authorize.
        imports = list_imports(
            session,
            distribution_id=distribution_id,
            state=ImportState(query.state) if query.state else None,
            **query.position,
        )
        may_manage = context.holds(Permission.DISTRIBUTION_MANAGE)
        notifications = (
            list_notifications(
                session,
                actor=context.actor,
                distribution_id=distribution_id,
                state=DeliveryState(query.notifications) if query.notifications else None,
                limit=_SHOWN_NOTIFICATIONS,
            ).items
            if may_manage
            else ()
        )
        labels = context.labels(session, [distribution.principal_identity_id, distribution.deployment_id])
    return context.render(
        "distribution.html",
        distribution=distribution,
        imports=imports,
        states=_STATES,
        query=query,
        retryable=_RETRYABLE,
        codes=sorted({at.code for at in imports.items if at.code and at.state in _RETRYABLE}),
        most=MAX_RETRIED_IMPORTS,
        notifications=notifications,
        deliveries=_DELIVERY_STATES,
        labels=labels,
        may_manage=may_manage,
        may_rotate=context.holds(Permission.CREDENTIAL_MANAGE),
    )


@routes.action(
    "/distributions/<id:distribution_id>/imports/<id:import_id>/retry",
    summary="Retry an import that failed or is paused",
    rest="retry_import",
    command="imports retry",
)
def retry_one(context: PageContext, distribution_id: UUID, import_id: UUID) -> Response:
    with context.services.database.transaction() as session:
        retry_import(
            session,
            context.services.settings,
            actor=context.actor,
            distribution_id=distribution_id,
            import_id=import_id,
        )
    return go_to(f"{PAGE}/{distribution_id}#imports")


@routes.action(
    "/distributions/<id:distribution_id>/imports/retry",
    summary="Retry the imports that failed or are paused",
    rest="retry_imports",
    command="imports retry-all",
)
def retry_all(context: PageContext, distribution_id: UUID) -> Response:
    form = context.form
    if form.get("state", "") not in ("", *_RETRYABLE):
        raise invalid_field("state", f"must be one of {', '.join(_RETRYABLE)}")
    with context.services.database.transaction() as session:
        retry_imports(
            session,
            context.services.settings,
            actor=context.actor,
            distribution_id=distribution_id,
            state=ImportState(form["state"]) if form.get("state") else None,
            code=form.get("code"),
            since=read_day(form["since"], "since") if form.get("since") else None,
        )
    # Show only queued imports: in the unfiltered list, they may be several pages down.
    return go_to(f"{PAGE}/{distribution_id}?state={ImportState.QUEUED}#imports")


routes.action_calling(
    "/distributions/<id:distribution_id>/notifications/<id:notification_id>/resend",
    resend_notification,
    return_to=f"{PAGE}/{{distribution_id}}#notifications",
    summary="Send a notification again after its last attempt failed",
    rest="resend_notification",
    command="notifications resend",
)


@routes.action(
    "/distributions/<id:distribution_id>/notifications/replay",
    summary="Replay undelivered notifications in order, from a day on",
    rest="replay_notifications",
    command="notifications replay",
)
def replay(context: PageContext, distribution_id: UUID) -> Response:
    with context.services.database.transaction() as session:
        replay_notifications(
            session,
            actor=context.actor,
            distribution_id=distribution_id,
            since=read_day(require(context.form, "since"), "since"),
        )
    return go_to(f"{PAGE}/{distribution_id}#notifications")


routes.action_calling(
    "/distributions/<id:distribution_id>/resend",
    resend_dead_notifications,
    return_to=f"{PAGE}/{{distribution_id}}#notifications",
    summary="Send every notification again if its last attempt failed",
    rest="resend_dead_notifications",
    command="notifications resend-dead",
)


@routes.action(
    "/distributions/<id:distribution_id>/token",
    summary="Rotate a distribution's token",
    rest="rotate_distribution_token",
    command="distributions rotate-token",
    step_up=PAGE,
)
def rotate_token(context: PageContext, distribution_id: UUID) -> Response:
    with context.services.database.transaction() as session:
        secret = rotate_distribution_token(session, actor=context.actor, distribution_id=distribution_id)
    # Return a page and no redirect, because the secret is returned only once.
    return context.render("rotated.html", what="token", secret=secret.value, distribution_id=distribution_id)


@routes.action(
    "/distributions/<id:distribution_id>/webhook-secret",
    summary="Rotate a distribution's webhook secret",
    rest="rotate_webhook_secret",
    command="distributions rotate-webhook-secret",
    step_up=PAGE,
)
def rotate_secret(context: PageContext, distribution_id: UUID) -> Response:
    with context.services.database.transaction() as session:
        secret = rotate_webhook_secret(
            session, context.services.settings, actor=context.actor, distribution_id=distribution_id
        )
    return context.render(
        "rotated.html", what="webhook secret", secret=secret.value, distribution_id=distribution_id
    )


routes.action_calling(
    "/distributions/<id:distribution_id>/disable",
    disable_distribution,
    return_to=f"{PAGE}/{{distribution_id}}",
    summary="Disable a distribution",
    rest="disable_distribution",
    command="distributions disable",
    step_up=PAGE,
)


routes.action_calling(
    "/distributions/<id:distribution_id>/enable",
    enable_distribution,
    return_to=f"{PAGE}/{{distribution_id}}",
    summary="Enable a disabled distribution",
    rest="enable_distribution",
    command="distributions enable",
    step_up=PAGE,
)
