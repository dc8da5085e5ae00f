"""Manage an organization's notification endpoint; list the organization's deliveries and resend dead letters.

A call that sets the endpoint issues the secret that signs the endpoint's messages. The secret is shown only once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import select

from shared.config.settings import Settings
from shared.db.database import Session
from shared.deliveries import outbox, replays
from shared.deliveries.endpoints import EndpointChannel, Endpoints
from shared.deliveries.outbox import Delivery, DeliveryState
from shared.deliveries.replays import Replayed
from shared.deliveries.tables import organization_endpoints
from shared.encryption import Encryption
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.errors import ResourceNotFound
from shared.identity.lookups import require_organization
from shared.identity.secrets import Secret, issue_webhook_secret
from shared.pagination import Page, Position

KIND = "organization"
"""The kind of deliveries to organizations. The id of the destination is the organization's id."""
_endpoints = Endpoints(organization_endpoints, organization_endpoints.c.organization_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrganizationEndpoint:
    """An organization's notification endpoint. `disabled_at` is the time when the endpoint responded 410."""

    organization_id: UUID
    url: str = field(repr=False)
    disabled_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedEndpoint:
    """A new endpoint with its secret, which no later call returns."""

    endpoint: OrganizationEndpoint
    webhook_secret: Secret


def set_endpoint(
    session: Session, settings: Settings, *, actor: Actor, organization_id: UUID, url: str
) -> IssuedEndpoint:
    """Set or replace the endpoint, and issue a new secret. Waiting messages use the new URL and secret from now on.

    Raises SchemeRefused, UrlRefused, AddressRefused and PermissionDenied.
    """
    _authorize(session, actor, organization_id)
    # Always issue a new secret: secrets are shown only once, so an owner who lost one sets the endpoint again.
    secret = issue_webhook_secret()
    sealed = Encryption(settings).encrypt(secret.value)
    _endpoints.put(session, settings, organization_id, url, webhook_secret_encrypted=sealed)
    _record(session, actor, "notification_endpoint.set", organization_id)
    return IssuedEndpoint(endpoint=_get(session, settings, organization_id), webhook_secret=secret)


def get_endpoint(
    session: Session, settings: Settings, *, actor: Actor, organization_id: UUID
) -> OrganizationEndpoint:
    """Return the endpoint. Raises ResourceNotFound if there is none."""
    _authorize(session, actor, organization_id)
    return _get(session, settings, organization_id)


def remove_organization_endpoint(session: Session, *, actor: Actor, organization_id: UUID) -> None:
    """Delete the endpoint. Its waiting messages become dead and can be replayed after another endpoint was set."""
    _authorize(session, actor, organization_id)
    if _endpoints.remove(session, organization_id):
        _record(session, actor, "notification_endpoint.removed", organization_id)


def find_is_disabled(session: Session, organization_id: UUID) -> bool | None:
    """Return whether the organization's endpoint is disabled; None if it has none."""
    of_organization = organization_endpoints.c.organization_id == organization_id
    is_disabled = select(organization_endpoints.c.disabled_at.is_not(None)).where(of_organization)
    return session.execute(is_disabled).scalar_one_or_none()


def list_notifications(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    state: DeliveryState | None = None,
    **page: Unpack[Position],
) -> Page[Delivery]:
    """Return a page of an organization's notifications, newest first."""
    _authorize(session, actor, organization_id)
    return outbox.list_deliveries(session, destination_id=organization_id, state=state, **page)


def resend_notification(
    session: Session, *, actor: Actor, organization_id: UUID, notification_id: UUID
) -> Delivery:
    """Send a waiting or dead notification now. Raises DeliveryNotFound and DeliveryNotDead."""
    _authorize(session, actor, organization_id)
    resent = replays.resend_delivery(session, destination_id=organization_id, delivery_id=notification_id)
    _record(session, actor, "notification.resent", organization_id, notification_id=notification_id)
    return resent


def replay_notifications(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    since: datetime | None = None,
    cursor: UUID | None = None,
) -> Replayed:
    """Replay undelivered notifications in order, including those for a disabled endpoint."""
    _authorize(session, actor, organization_id)
    replayed = replays.replay(session, destination_id=organization_id, since=since, cursor=cursor)
    # Record only a replay that sent something: an empty replay changed nothing.
    if replayed.count:
        _record(session, actor, "notifications.replayed", organization_id, count=replayed.count)
    return replayed


def make_channel(encryption: Encryption) -> EndpointChannel:
    """Return the channel that posts an organization's notifications to its endpoint."""
    return EndpointChannel(encryption, _endpoints, _list_secrets)


def _list_secrets(session: Session, encryption: Encryption, organization_id: UUID) -> Sequence[str]:
    of_organization = organization_endpoints.c.organization_id == organization_id
    sealed = session.execute(
        select(organization_endpoints.c.webhook_secret_encrypted).where(of_organization)
    ).scalar_one_or_none()
    # Return no secret if the endpoint was removed: the channel then finds no endpoint, and the message is given up.
    return [] if sealed is None else [encryption.decrypt(bytes(sealed))]


def _authorize(session: Session, actor: Actor, organization_id: UUID) -> None:
    # Check the permission first, so that only an operator learns that an organization does not exist.
    authorize_administration(actor, Permission.ORGANIZATION_MANAGE, organization_id)
    require_organization(session, organization_id)


def _get(session: Session, settings: Settings, organization_id: UUID) -> OrganizationEndpoint:
    found = _endpoints.find(session, settings, organization_id)
    if found is None:
        raise ResourceNotFound
    return OrganizationEndpoint(
        organization_id=organization_id,
        url=found.url,
        disabled_at=found.disabled_at,
        created_at=found.created_at,
    )


def _record(session: Session, actor: Actor, action: str, organization_id: UUID, **details: Any) -> None:
    record(
        session,
        actor,
        action,
        organization_id,
        resource_kind="organization",
        organization_id=organization_id,
        **details,
    )
