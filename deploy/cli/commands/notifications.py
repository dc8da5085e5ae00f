"""The command group `notifications`: webhook endpoints of distributions and organizations, and their notifications."""

from datetime import datetime
from typing import TextIO
from uuid import UUID

import click

from deploy.cli.command_context import (
    INSTANT,
    administration,
    choice,
    in_utc,
    installation,
    page_options,
    print_json,
    required_id,
    show,
    show_page,
)
from shared.deliveries import organization_endpoints
from shared.deliveries.outbox import DeliveryState
from shared.identity.access.authorization import OPERATOR
from shared.media.notifications import notification_endpoints as domain

_distribution = click.argument("distribution_id", type=click.UUID, metavar="DISTRIBUTION")
_organization = click.argument("organization_id", type=click.UUID, metavar="ORGANIZATION")
_url = click.option(
    "--url-file",
    "source",
    type=click.File(encoding="utf-8"),
    default="-",
    help="File with the endpoint's URL, which may contain a secret; standard input by default.",
)
_since = click.option(
    "--since",
    type=INSTANT,
    help="Only notifications created at or after this UTC time, for example 2030-01-31T12:00:00Z.",
)
_after = click.option(
    "--after",
    "cursor",
    type=click.UUID,
    help="Only notifications after this one: the id of the last received.",
)

notifications = click.Group(
    "notifications", help="Manage the notifications of distributions and organizations."
)


@notifications.command(
    "set-endpoint",
    help="Set the endpoint of a distribution's notifications; a disabled one is enabled again.",
)
@_distribution
@_url
def set_endpoint(distribution_id: UUID, source: TextIO) -> None:
    # Read before the transaction begins: standard input blocks while a person types.
    url = source.read().strip()
    with installation() as (database, settings), database.transaction() as session:
        endpoint = domain.set_endpoint(
            session, settings, actor=OPERATOR, distribution_id=distribution_id, url=url
        )
    show(endpoint)


@notifications.command("show-endpoint", help="Get the endpoint of a distribution's notifications.")
@_distribution
def show_endpoint(distribution_id: UUID) -> None:
    with installation() as (database, settings), database.transaction() as session:
        endpoint = domain.get_endpoint(session, settings, actor=OPERATOR, distribution_id=distribution_id)
    show(endpoint)


@notifications.command(
    "remove-endpoint",
    help="Delete the endpoint of a distribution's notifications; pending ones become dead (not delivered).",
)
@_distribution
def remove_endpoint(distribution_id: UUID) -> None:
    with administration() as session:
        domain.remove_endpoint(session, actor=OPERATOR, distribution_id=distribution_id)


@notifications.command("list", help="List a distribution's notifications, newest first.")
@_distribution
@click.option("--state", type=choice(DeliveryState), help="Only notifications in this state.")
@page_options
def list_notifications(distribution_id: UUID, state: str | None, cursor: str | None, limit: int) -> None:
    with administration() as session:
        page = domain.list_notifications(
            session,
            actor=OPERATOR,
            distribution_id=distribution_id,
            state=DeliveryState(state) if state else None,
            cursor=cursor,
            limit=limit,
        )
    show_page("notifications", page)


@notifications.command("resend", help="Send a pending or dead notification now, with its original id.")
@_distribution
@required_id("notification")
def resend_notification(distribution_id: UUID, notification_id: UUID) -> None:
    with administration() as session:
        resent = domain.resend_notification(
            session, actor=OPERATOR, distribution_id=distribution_id, notification_id=notification_id
        )
    show(resent)


@notifications.command("resend-dead", help="Replay a distribution's dead notifications, at most 1,000.")
@_distribution
def resend_dead_notifications(distribution_id: UUID) -> None:
    with administration() as session:
        count = domain.resend_dead_notifications(session, actor=OPERATOR, distribution_id=distribution_id)
    print_json({"count": count})


@notifications.command(
    "replay", help="Replay a distribution's notifications that were not delivered, at most 1,000."
)
@_distribution
@_since
@_after
def replay_notifications(distribution_id: UUID, since: datetime | None, cursor: UUID | None) -> None:
    with administration() as session:
        replayed = domain.replay_notifications(
            session, actor=OPERATOR, distribution_id=distribution_id, since=in_utc(since), cursor=cursor
        )
    show(replayed)


@notifications.command(
    "set-organization-endpoint",
    help="Set the endpoint of an organization's notifications; its new webhook secret is shown only once.",
)
@_organization
@_url
def set_organization_endpoint(organization_id: UUID, source: TextIO) -> None:
    url = source.read().strip()
    with installation() as (database, settings), database.transaction() as session:
        issued = organization_endpoints.set_endpoint(
            session, settings, actor=OPERATOR, organization_id=organization_id, url=url
        )
    show(issued.endpoint, webhook_secret=issued.webhook_secret.value)


@notifications.command(
    "show-organization-endpoint", help="Get the endpoint of an organization's notifications."
)
@_organization
def show_organization_endpoint(organization_id: UUID) -> None:
    with installation() as (database, settings), database.transaction() as session:
        endpoint = organization_endpoints.get_endpoint(
            session, settings, actor=OPERATOR, organization_id=organization_id
        )
    show(endpoint)


@notifications.command(
    "remove-organization-endpoint", help="Delete the endpoint of an organization's notifications."
)
@_organization
def remove_organization_endpoint(organization_id: UUID) -> None:
    with administration() as session:
        organization_endpoints.remove_organization_endpoint(
            session, actor=OPERATOR, organization_id=organization_id
        )


@notifications.command("list-organization", help="List an organization's notifications, newest first.")
@_organization
@click.option("--state", type=choice(DeliveryState), help="Only notifications in this state.")
@page_options
def list_organization_notifications(
    organization_id: UUID, state: str | None, cursor: str | None, limit: int
) -> None:
    with administration() as session:
        page = organization_endpoints.list_notifications(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            state=DeliveryState(state) if state else None,
            cursor=cursor,
            limit=limit,
        )
    show_page("notifications", page)


@notifications.command(
    "resend-organization",
    help="Send a pending or dead notification of an organization now, with its original id.",
)
@_organization
@required_id("notification")
def resend_organization_notification(organization_id: UUID, notification_id: UUID) -> None:
    with administration() as session:
        resent = organization_endpoints.resend_notification(
            session, actor=OPERATOR, organization_id=organization_id, notification_id=notification_id
        )
    show(resent)


@notifications.command(
    "replay-organization",
    help="Replay an organization's notifications that were not delivered, at most 1,000.",
)
@_organization
@_since
@_after
def replay_organization_notifications(
    organization_id: UUID, since: datetime | None, cursor: UUID | None
) -> None:
    with administration() as session:
        replayed = organization_endpoints.replay_notifications(
            session, actor=OPERATOR, organization_id=organization_id, since=in_utc(since), cursor=cursor
        )
    show(replayed)
