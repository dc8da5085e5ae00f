"""Read the current state of a distribution: by its token, or by its id together with the permissions for imports.

The target deployment's daemon executes an import. The receiving identity owns the file and also needs the
permission (docs/specification/identity.md#receiving). An import reads this state at the push and again before the
file is stored.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, LargeBinary, and_, bindparam, cast, func, or_, select

from shared.db.database import Session
from shared.identity.access.effective_permissions import bindings_of, identity_permissions
from shared.identity.access.permissions import Permission
from shared.identity.authentication.credential_statements import used_recently
from shared.identity.tables import deployments, distributions, identities, organizations, role_bindings

_NOTHING: frozenset[Permission] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveDistribution:
    """A distribution, its receiving identity, and the deployment that its messages are routed to."""

    id: UUID
    organization_id: UUID
    principal_id: UUID
    deployment_id: UUID
    daemon_id: UUID
    version_id: UUID | None
    media_retention_days: int
    is_target_enabled: bool
    is_suspended: bool
    used_recently: bool
    token_hash: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveReceiver:
    """A distribution and its receiver, with the permissions of executor and receiver over the receiver's files."""

    distribution_id: UUID
    organization_id: UUID
    principal_id: UUID
    deployment_id: UUID
    daemon_id: UUID
    networks: tuple[str, ...]
    media_retention_days: int
    is_disabled: bool
    is_target_enabled: bool
    is_suspended: bool
    is_token_live: bool
    """Whether the given token is still valid for the distribution. True if no token was given."""
    executor_permissions: frozenset[Permission]
    receiver_permissions: frozenset[Permission]


def find_live_distribution(session: Session, token_hash: bytes) -> LiveDistribution | None:
    """Return the enabled distribution of a token, or None. A replaced token is valid until its overlap ends."""
    row = session.execute(_DISTRIBUTION, {"hash": token_hash}).one_or_none()
    return LiveDistribution(**row._asdict(), token_hash=token_hash) if row is not None else None


def read_receiver(row: Any) -> LiveReceiver:
    """Convert a row of `LIVE_RECEIVER`."""
    scopes = (row.organization_id, row.principal_id)
    return LiveReceiver(
        distribution_id=row.id,
        organization_id=row.organization_id,
        principal_id=row.principal_id,
        deployment_id=row.deployment_id,
        daemon_id=row.daemon_id,
        networks=tuple(row.networks),
        media_retention_days=row.media_retention_days,
        is_disabled=row.is_disabled,
        is_target_enabled=row.is_target_enabled,
        is_suspended=row.is_suspended,
        is_token_live=row.is_token_live,
        executor_permissions=_permissions(row.executor_bindings, scopes),
        receiver_permissions=_permissions(row.receiver_bindings, scopes),
    )


def is_token(token_hash: Any) -> ColumnElement[bool]:
    """Return the SQL condition that a token is the distribution's current one or a replaced one in its overlap."""
    return or_(
        distributions.c.token_hash == token_hash,
        and_(
            distributions.c.previous_token_hash == token_hash,
            distributions.c.previous_token_expires_at > func.now(),
        ),
    )


def _permissions(bindings: Any, scopes: tuple[UUID, UUID]) -> frozenset[Permission]:
    held = identity_permissions(bindings)
    return _NOTHING.union(*(held.get(scope, _NOTHING) for scope in scopes))


def _bindings_of(identity_id: Any, label: str) -> Any:
    return bindings_of(role_bindings.c.subject_identity_id == identity_id).element.label(label)


def _select(*columns: Any) -> Any:
    """Return a select of a distribution with its receiver and target, and with further columns."""
    return (
        select(
            distributions.c.id,
            distributions.c.organization_id,
            distributions.c.principal_identity_id.label("principal_id"),
            distributions.c.deployment_id,
            deployments.c.daemon_identity_id.label("daemon_id"),
            distributions.c.media_retention_days,
            # Select a column instead of filtering by a condition, so that the caller knows the reason for a
            # refusal.
            and_(
                deployments.c.disabled_at.is_(None),
                _daemons.c.disabled_at.is_(None),
                identities.c.disabled_at.is_(None),
            ).label("is_target_enabled"),
            organizations.c.suspended_at.is_not(None).label("is_suspended"),
            *columns,
        )
        .join(organizations, organizations.c.id == distributions.c.organization_id)
        .join(identities, identities.c.id == distributions.c.principal_identity_id)
        .join(deployments, deployments.c.id == distributions.c.deployment_id)
        .join(_daemons, _daemons.c.id == deployments.c.daemon_identity_id)
    )


_daemons = identities.alias("daemons")
_DISTRIBUTION = _select(
    deployments.c.active_version_id.label("version_id"), used_recently(distributions.c.last_used_at)
).where(distributions.c.disabled_at.is_(None), is_token(bindparam("hash")))
# Cast the parameter, because Postgres cannot infer its type if it is only compared with null.
_token = cast(bindparam("token"), LargeBinary)
LIVE_RECEIVER = _select(
    distributions.c.networks,
    distributions.c.disabled_at.is_not(None).label("is_disabled"),
    or_(_token.is_(None), is_token(_token)).label("is_token_live"),
    _bindings_of(deployments.c.daemon_identity_id, "executor_bindings"),
    _bindings_of(identities.c.id, "receiver_bindings"),
).where(distributions.c.id == bindparam("distribution"))
"""Selects the `distribution` of an id, and whether the `token` of a hash is one of its valid tokens."""
