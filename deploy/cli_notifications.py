"""Commands for a distribution's notifications: where they go, and those that did not arrive."""

from typing import TextIO
from uuid import UUID

import click

from deploy.administration import administration, choice, installation, paged, print_json, show, show_page
from shared.deliveries.outbox import DeliveryState
from shared.identity.authorization import OPERATOR
from shared.media import notification_endpoints as domain

_distribution = click.argument("distribution_id", type=click.UUID, metavar="DISTRIBUTION")


notifications = click.Group("notifications", help="Manage the notifications of distributions.")


@notifications.command(
    "set-endpoint", help="Replace the endpoint of a distribution's notifications, or enable it again."
)
@_distribution
@click.option(
    "--url-file",
    "source",
    type=click.File(encoding="utf-8"),
    default="-",
    help="A file with the address, which may be secret; standard input by default.",
)
def set_endpoint(distribution_id: UUID, source: TextIO) -> None:
    url = source.read().strip()
    with installation() as (database, settings), database.transaction() as session:
        endpoint = domain.set_endpoint(
            session, settings, by=OPERATOR, distribution_id=distribution_id, url=url
        )
    show(endpoint)


@notifications.command("show-endpoint", help="Get the endpoint of a distribution's notifications.")
@_distribution
def show_endpoint(distribution_id: UUID) -> None:
    with installation() as (database, settings), database.transaction() as session:
        endpoint = domain.get_endpoint(session, settings, by=OPERATOR, distribution_id=distribution_id)
    show(endpoint)


@notifications.command(
    "remove-endpoint", help="Delete the endpoint of a distribution's notifications; what waits is given up."
)
@_distribution
def remove_endpoint(distribution_id: UUID) -> None:
    with administration() as session:
        domain.remove_endpoint(session, by=OPERATOR, distribution_id=distribution_id)


@notifications.command("list", help="List a distribution's notifications, newest first.")
@_distribution
@click.option("--state", type=choice(DeliveryState))
@paged
def list_notifications(distribution_id: UUID, state: str | None, cursor: str | None, limit: int) -> None:
    with administration() as session:
        page = domain.list_notifications(
            session,
            by=OPERATOR,
            distribution_id=distribution_id,
            state=DeliveryState(state) if state else None,
            cursor=cursor,
            limit=limit,
        )
    show_page("notifications", page)


@notifications.command("resend", help="Replay a notification that was given up, under the id it had.")
@_distribution
@click.option("--notification", "notification_id", type=click.UUID, required=True)
def resend_notification(distribution_id: UUID, notification_id: UUID) -> None:
    with administration() as session:
        resent = domain.resend_notification(
            session, by=OPERATOR, distribution_id=distribution_id, notification_id=notification_id
        )
    show(resent)


@notifications.command("resend-dead", help="Replay every notification of a distribution that was given up.")
@_distribution
def resend_dead_notifications(distribution_id: UUID) -> None:
    with administration() as session:
        count = domain.resend_dead_notifications(session, by=OPERATOR, distribution_id=distribution_id)
    print_json({"count": count})
