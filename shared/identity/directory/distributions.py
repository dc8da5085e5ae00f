"""Distributions: connectors to messaging networks, each with a receiving identity and a target deployment.

The token and the webhook secret of a distribution are shown once. After a rotation, the replaced token or secret
stays valid for an overlap that the caller chooses.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, func, insert, select, update

from shared.config.settings import Settings
from shared.db.database import Session
from shared.db.schema import columns_of
from shared.encryption import Encryption
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.conditional_updates import mark_disabled, mark_enabled, set_values
from shared.identity.field_validation import require_name, require_networks
from shared.identity.lookups import get_one, require_deployment, require_organization, require_principal
from shared.identity.secrets import Prefix, Secret, issue, issue_webhook_secret
from shared.identity.tables import distributions
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate

DEFAULT_MEDIA_RETENTION_DAYS = 30
MAX_MEDIA_RETENTION_DAYS = 3650
DEFAULT_OVERLAP_SECONDS = 24 * 3600
MAX_OVERLAP_SECONDS = 30 * 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """A distribution without its secrets."""

    id: UUID
    organization_id: UUID
    name: str
    networks: tuple[str, ...]
    principal_identity_id: UUID
    deployment_id: UUID
    token_last4: str
    media_retention_days: int
    routes_messages: bool
    """Whether messages from its networks' webhooks are sent to the deployment's agent."""
    disabled_at: datetime | None
    last_used_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedDistribution:
    """A new distribution with its token and webhook secret, which are shown only once."""

    distribution: Distribution
    token: Secret
    webhook_secret: Secret


def create_distribution(
    session: Session,
    settings: Settings,
    *,
    actor: Actor,
    organization_id: UUID,
    name: str,
    networks: Sequence[str],
    principal_identity_id: UUID,
    deployment_id: UUID,
    media_retention_days: int = DEFAULT_MEDIA_RETENTION_DAYS,
    routes_messages: bool = False,
) -> CreatedDistribution:
    """Create a distribution, which routes a receiving identity's messages of the given networks to a deployment.

    Raises PermissionDenied, ResourceNotFound, ValidationFailed.
    """
    authorize_administration(actor, Permission.DISTRIBUTION_MANAGE, organization_id)
    require_organization(session, organization_id)
    # Require a Principal Identity: a Daemon Identity executes calls and cannot receive messages.
    require_principal(session, organization_id, principal_identity_id)
    require_deployment(session, organization_id, deployment_id)
    token, webhook_secret = issue(Prefix.DISTRIBUTION_TOKEN), issue_webhook_secret()
    distribution_id = new_id()
    session.execute(
        insert(distributions).values(
            id=distribution_id,
            organization_id=organization_id,
            name=require_name(name),
            networks=require_networks(networks),
            principal_identity_id=principal_identity_id,
            deployment_id=deployment_id,
            token_hash=token.hash,
            token_last4=token.last4,
            # Encrypt instead of hashing, because signing outgoing webhooks needs the secret itself.
            webhook_secret_encrypted=Encryption(settings).encrypt(webhook_secret.value),
            media_retention_days=_require_days(media_retention_days),
            routes_messages=routes_messages,
        )
    )
    distribution = _get(session, distribution_id)
    record_change(session, actor, "distribution.created", distribution)
    return CreatedDistribution(distribution=distribution, token=token, webhook_secret=webhook_secret)


def get_managed_distribution(session: Session, *, actor: Actor, distribution_id: UUID) -> Distribution:
    """Return a distribution that the actor may manage. Raises ResourceNotFound, PermissionDenied."""
    distribution = get_distribution(session, actor=actor, distribution_id=distribution_id)
    authorize_administration(actor, Permission.DISTRIBUTION_MANAGE, distribution.organization_id)
    return distribution


def get_distribution(session: Session, *, actor: Actor, distribution_id: UUID) -> Distribution:
    """Return a distribution. Raises ResourceNotFound, PermissionDenied."""
    return _authorized(session, actor, Permission.ORGANIZATION_READ, distribution_id)


def list_distributions(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[Distribution]:
    """Return a page of an organization's distributions, oldest first."""
    authorize_administration(actor, Permission.ORGANIZATION_READ, organization_id)
    statement = _DISTRIBUTIONS.where(distributions.c.organization_id == organization_id)
    return paginate(session, statement, ascending(distributions.c.id), _distribution, **page)


def update_distribution(
    session: Session,
    *,
    actor: Actor,
    distribution_id: UUID,
    name: str | None = None,
    networks: Sequence[str] | None = None,
    media_retention_days: int | None = None,
    routes_messages: bool | None = None,
) -> Distribution:
    """Update the fields that are not None. Media that is already stored keeps its retention deadline."""
    distribution = _authorized(session, actor, Permission.DISTRIBUTION_MANAGE, distribution_id)
    changes: dict[str, Any] = {}
    if name is not None:
        changes["name"] = require_name(name)
    if networks is not None:
        changes["networks"] = require_networks(networks)
    if media_retention_days is not None:
        changes["media_retention_days"] = _require_days(media_retention_days)
    if routes_messages is not None:
        changes["routes_messages"] = routes_messages
    # `set_values` compares, so that an update to equal values writes no audit event.
    if changes and set_values(session, distributions, distribution_id, changes):
        record_change(session, actor, "distribution.updated", distribution)
    return _get(session, distribution_id)


def rotate_distribution_token(
    session: Session, *, actor: Actor, distribution_id: UUID, overlap_seconds: int = DEFAULT_OVERLAP_SECONDS
) -> Secret:
    """Replace the token and return the new one. The replaced token stays valid for the overlap; older ones do not."""
    distribution = _authorized(session, actor, Permission.CREDENTIAL_MANAGE, distribution_id)
    token = issue(Prefix.DISTRIBUTION_TOKEN)
    changes = {
        # Copy column to column in one update, so that of two concurrent rotations the second keeps the first one's
        # token.
        "previous_token_hash": distributions.c.token_hash,
        "previous_token_expires_at": func.now() + require_overlap(overlap_seconds),
        "token_hash": token.hash,
        "token_last4": token.last4,
    }
    _change(session, distribution_id, changes)
    record_change(session, actor, "distribution.token_rotated", distribution)
    return token


def rotate_webhook_secret(
    session: Session,
    settings: Settings,
    *,
    actor: Actor,
    distribution_id: UUID,
    overlap_seconds: int = DEFAULT_OVERLAP_SECONDS,
) -> Secret:
    """Replace the webhook secret and return the new one. The replaced secret stays valid for the overlap."""
    distribution = _authorized(session, actor, Permission.CREDENTIAL_MANAGE, distribution_id)
    secret = issue_webhook_secret()
    changes = {
        "previous_webhook_secret_encrypted": distributions.c.webhook_secret_encrypted,
        "previous_webhook_secret_expires_at": func.now() + require_overlap(overlap_seconds),
        "webhook_secret_encrypted": Encryption(settings).encrypt(secret.value),
    }
    _change(session, distribution_id, changes)
    record_change(session, actor, "distribution.webhook_secret_rotated", distribution)
    return secret


def disable_distribution(session: Session, *, actor: Actor, distribution_id: UUID) -> Distribution:
    """Disable a distribution. Its token and its attributions are refused until it is enabled."""
    distribution = _authorized(session, actor, Permission.DISTRIBUTION_MANAGE, distribution_id)
    if mark_disabled(session, distributions, distributions.c.disabled_at, distribution_id):
        record_change(session, actor, "distribution.disabled", distribution)
    return _get(session, distribution_id)


def enable_distribution(session: Session, *, actor: Actor, distribution_id: UUID) -> Distribution:
    """Enable a disabled distribution."""
    distribution = _authorized(session, actor, Permission.DISTRIBUTION_MANAGE, distribution_id)
    if mark_enabled(session, distributions, distributions.c.disabled_at, distribution_id):
        record_change(session, actor, "distribution.enabled", distribution)
    return _get(session, distribution_id)


def has_routed_messages(session: Session, distribution_id: UUID) -> bool:
    """Return whether a distribution's messages are sent to its deployment's agent."""
    statement = select(distributions.c.routes_messages).where(distributions.c.id == distribution_id)
    return bool(session.execute(statement).scalar())


def _authorized(
    session: Session, actor: Actor, permission: Permission, distribution_id: UUID
) -> Distribution:
    distribution = _get(session, distribution_id)
    authorize_administration(actor, permission, distribution.organization_id)
    return distribution


def _get(session: Session, distribution_id: UUID) -> Distribution:
    return get_one(session, _DISTRIBUTIONS.where(distributions.c.id == distribution_id), _distribution)


def _change(session: Session, distribution_id: UUID, changes: dict[str, Any]) -> None:
    session.execute(update(distributions).where(distributions.c.id == distribution_id).values(changes))


def record_change(
    session: Session, actor: Actor, action: str, distribution: Distribution, **details: Any
) -> None:
    """Insert an audit event for a distribution, or for a resource that belongs to a distribution."""
    record(session, actor, action, distribution.id, organization_id=distribution.organization_id, **details)


def require_overlap(overlap_seconds: int) -> timedelta:
    """Return the overlap as a timedelta. Raises ValidationFailed unless it is from 0 to MAX_OVERLAP_SECONDS."""
    if not 0 <= overlap_seconds <= MAX_OVERLAP_SECONDS:
        raise invalid_field("overlapSeconds", f"must be from 0 to {MAX_OVERLAP_SECONDS}")
    return timedelta(seconds=overlap_seconds)


def _require_days(days: int) -> int:
    if not 1 <= days <= MAX_MEDIA_RETENTION_DAYS:
        raise invalid_field("mediaRetentionDays", f"must be from 1 to {MAX_MEDIA_RETENTION_DAYS}")
    return days


def _distribution(row: Row[Any]) -> Distribution:
    return Distribution(**{**row._asdict(), "networks": tuple(row.networks)})


_DISTRIBUTIONS = select(*columns_of(Distribution, distributions))
