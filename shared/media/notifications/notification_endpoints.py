"""Manage a distribution's notification endpoint; list its deliveries and resend dead letters.

The URL may contain a secret: it is encrypted and shown only to callers that may change it. An endpoint that responded
410 is disabled until it is set again.
"""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Unpack
from uuid import UUID

from shared.config.settings import Settings
from shared.db.database import Session
from shared.deliveries import outbox, replays
from shared.deliveries.outbox import Delivery, DeliveryState
from shared.deliveries.replays import Replayed
from shared.identity.access.authorization import Actor
from shared.identity.directory.distributions import get_managed_distribution, record_change
from shared.identity.errors import ResourceNotFound
from shared.media.notifications.notification_channel import ENDPOINTS
from shared.pagination import Page, Position


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationEndpoint:
    """A distribution's notification endpoint; `disabled_at` is when it responded 410."""

    distribution_id: UUID
    url: str = field(repr=False)
    disabled_at: datetime | None
    created_at: datetime


def set_endpoint(
    session: Session, settings: Settings, *, actor: Actor, distribution_id: UUID, url: str
) -> NotificationEndpoint:
    """Set or replace the endpoint; waiting notifications go there from now on.

    Raises SchemeRefused, UrlRefused and AddressRefused for a URL that could never be posted to.
    """
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    ENDPOINTS.put(session, settings, distribution_id, url, organization_id=distribution.organization_id)
    record_change(session, actor, "notification_endpoint.set", distribution)
    return _get(session, settings, distribution_id)


def get_endpoint(
    session: Session, settings: Settings, *, actor: Actor, distribution_id: UUID
) -> NotificationEndpoint:
    """Return the endpoint. Raises ResourceNotFound if there is none."""
    get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    return _get(session, settings, distribution_id)


def remove_endpoint(session: Session, *, actor: Actor, distribution_id: UUID) -> None:
    """Delete the endpoint; its waiting notifications become dead and can be replayed to the next one."""
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    if ENDPOINTS.remove(session, distribution_id):
        record_change(session, actor, "notification_endpoint.removed", distribution)


def list_notifications(
    session: Session,
    *,
    actor: Actor,
    distribution_id: UUID,
    state: DeliveryState | None = None,
    **page: Unpack[Position],
) -> Page[Delivery]:
    """Return a page of a distribution's notifications, newest first."""
    get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    return outbox.list_deliveries(session, destination_id=distribution_id, state=state, **page)


def resend_notification(
    session: Session, *, actor: Actor, distribution_id: UUID, notification_id: UUID
) -> Delivery:
    """Send a waiting or dead notification now. Raises DeliveryNotFound and DeliveryNotDead."""
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    resent = replays.resend_delivery(session, destination_id=distribution_id, delivery_id=notification_id)
    record_change(session, actor, "notification.resent", distribution, notification_id=notification_id)
    return resent


def resend_dead_notifications(session: Session, *, actor: Actor, distribution_id: UUID) -> int:
    """Replay the oldest dead notifications, up to REPLAY_LIMIT; return how many."""
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    count = replays.resend_dead(session, destination_id=distribution_id)
    # Without a message nothing changed, so the audit trail has no event.
    if count:
        record_change(session, actor, "notification.dead_resent", distribution, count=count)
    return count


def replay_notifications(
    session: Session,
    *,
    actor: Actor,
    distribution_id: UUID,
    since: datetime | None = None,
    cursor: UUID | None = None,
) -> Replayed:
    """Replay undelivered notifications in order, including those missed by a disabled endpoint."""
    distribution = get_managed_distribution(session, actor=actor, distribution_id=distribution_id)
    replayed = replays.replay(session, destination_id=distribution_id, since=since, cursor=cursor)
    if replayed.count:
        record_change(session, actor, "notifications.replayed", distribution, count=replayed.count)
    return replayed


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
