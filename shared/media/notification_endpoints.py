"""Manage a distribution's notification endpoint; list its deliveries and resend dead letters.

The address may hold a secret: it is kept encrypted and shown only to those who may change it. An endpoint that
answered 410 is disabled until it is set again.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Unpack
from uuid import UUID

from shared.database import Session
from shared.deliveries import outbox
from shared.deliveries.outbox import Delivery, DeliveryState
from shared.identity import distributions
from shared.identity.authorization import Actor, authorize_administration
from shared.identity.distributions import Distribution, record_change
from shared.identity.errors import ResourceNotFound
from shared.identity.permissions import Permission
from shared.media.notification_channel import ENDPOINTS
from shared.pagination import Page, Position
from shared.settings import Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationEndpoint:
    """Where a distribution's notifications go; `disabled_at` is when it answered that it wants none."""

    distribution_id: UUID
    url: str = field(repr=False)
    disabled_at: datetime | None
    created_at: datetime


def set_endpoint(
    session: Session, settings: Settings, *, by: Actor, distribution_id: UUID, url: str
) -> NotificationEndpoint:
    """Set or replace the endpoint; waiting notifications go there from now on.

    Raises SchemeRefused, UrlRefused and AddressRefused for an address that could never be posted to.
    """
    distribution = _authorized(session, by, distribution_id)
    ENDPOINTS.put(session, settings, distribution_id, url, organization_id=distribution.organization_id)
    record_change(session, by, "notification_endpoint.set", distribution)
    return _get(session, settings, distribution_id)


def get_endpoint(
    session: Session, settings: Settings, *, by: Actor, distribution_id: UUID
) -> NotificationEndpoint:
    """Read the endpoint. Raises ResourceNotFound when there is none."""
    _authorized(session, by, distribution_id)
    return _get(session, settings, distribution_id)


def remove_endpoint(session: Session, *, by: Actor, distribution_id: UUID) -> None:
    """Remove the endpoint; what waits for it is given up, and can be sent again to the next one."""
    distribution = _authorized(session, by, distribution_id)
    if ENDPOINTS.remove(session, distribution_id):
        record_change(session, by, "notification_endpoint.removed", distribution)


def list_notifications(
    session: Session,
    *,
    by: Actor,
    distribution_id: UUID,
    state: DeliveryState | None = None,
    **page: Unpack[Position],
) -> Page[Delivery]:
    """List the notifications to a distribution, newest first."""
    _authorized(session, by, distribution_id)
    return outbox.list_deliveries(session, destination_id=distribution_id, state=state, **page)


def resend_notification(
    session: Session, *, by: Actor, distribution_id: UUID, notification_id: UUID
) -> Delivery:
    """Send a notification again that was given up. Raises DeliveryNotFound, DeliveryNotDead."""
    distribution = _authorized(session, by, distribution_id)
    resent = outbox.resend_delivery(session, destination_id=distribution_id, delivery_id=notification_id)
    record_change(session, by, "notification.resent", distribution, notification_id=notification_id)
    return resent


def resend_dead_notifications(session: Session, *, by: Actor, distribution_id: UUID) -> int:
    """Send every notification again that was given up; give how many."""
    distribution = _authorized(session, by, distribution_id)
    count = outbox.resend_dead(session, destination_id=distribution_id)
    if count:
        record_change(session, by, "notification.dead_resent", distribution, count=count)
    return count


def _authorized(session: Session, by: Actor, distribution_id: UUID) -> Distribution:
    distribution = distributions.get_distribution(session, by=by, distribution_id=distribution_id)
    authorize_administration(by, Permission.DISTRIBUTION_MANAGE, distribution.organization_id)
    return distribution


def _get(session: Session, settings: Settings, distribution_id: UUID) -> NotificationEndpoint:
    found = ENDPOINTS.find(session, settings, distribution_id)
    if found is None:
        raise ResourceNotFound
    return NotificationEndpoint(
        distribution_id=distribution_id,
        url=found.url,
        disabled_at=found.disabled_at,
        created_at=found.created_at,
    )
