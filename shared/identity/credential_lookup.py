"""Read, in one statement each, everything about a credential that may have changed since it was issued.

Whatever was disabled (deployment, version, secret, daemon, key, user, membership, distribution, organization) makes
its credentials worthless from the next reading on. A function gives None for a worthless credential;
`authentication.py` makes callers of the rows and caches them.
"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Row, Uuid, and_, bindparam, exists, func, null, or_, select

from shared.database import Session
from shared.identity.access_tokens import AccessClaims
from shared.identity.callers import OwnerKind
from shared.identity.console_tables import console_sessions
from shared.identity.effective_permissions import (
    PermissionsByScope,
    bindings_of,
    identity_permissions,
    member_permissions,
)
from shared.identity.tables import (
    api_keys,
    client_credentials,
    deployments,
    distributions,
    identities,
    memberships,
    organizations,
    revoked_tokens,
    role_bindings,
    users,
    versions,
)
from shared.identity.usage_attribution import AttributionClaims

IDLE = timedelta(hours=2)
"""A session of the console that is not used for so long is over."""
STEP_UP = timedelta(minutes=10)
"""For so long after its user has proved who they are, a session may do what costs money or shows secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRuntime:
    """A deployment's call: its organization, current daemon and the daemon's permissions by scope."""

    organization_id: UUID
    daemon_id: UUID
    permissions_by_scope: PermissionsByScope
    is_suspended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveApiKey:
    """A user's key; `organization_id` is where the user acts, None when no organization is selected."""

    id: UUID
    user_id: UUID
    is_operator: bool
    bound_organization_id: UUID | None
    organization_id: UUID | None
    permissions_by_scope: PermissionsByScope
    is_suspended: bool
    used_recently: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveSession(LiveApiKey):
    """A user's session of the console: it acts as an unbound key does, in an organization of its own choice."""

    has_stepped_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAttribution:
    """The owner an attribution names, and whether anyone it needs is suspended."""

    owner_kind: OwnerKind
    organization_id: UUID
    is_suspended: bool


def find_live_runtime(session: Session, claims: AccessClaims) -> LiveRuntime | None:
    """Read what an access token names; None when any of it is disabled, revoked, expired or gone."""
    parameters = {
        "deployment": claims.deployment_id,
        "client": claims.client_id,
        "version": claims.version_id,
        "credential": claims.credential_id,
        "token": claims.token_id,
    }
    row = session.execute(_RUNTIME, parameters).one_or_none()
    if row is None:
        return None
    return LiveRuntime(
        organization_id=row.organization_id,
        daemon_id=row.daemon_identity_id,
        permissions_by_scope=identity_permissions(row.bindings),
        is_suspended=row.is_suspended,
    )


def find_live_api_key(
    session: Session, key_hash: bytes, *, acting_in: UUID | None = None
) -> LiveApiKey | None:
    """Read a user's key; None when it is unknown, expired or revoked, or its user has lost the right to it.

    `acting_in` keeps a call in its organization if its user has selected another meanwhile.
    """
    row = session.execute(_API_KEY, {"hash": key_hash, "acting_in": acting_in}).one_or_none()
    return LiveApiKey(**_user_values(row)) if row is not None else None


def find_live_session(
    session: Session, token_hash: bytes, *, acting_in: UUID | None = None
) -> LiveSession | None:
    """Read a session of the console; None when it is unknown, over, idle or revoked, or its user is disabled."""
    row = session.execute(_SESSION, {"hash": token_hash, "acting_in": acting_in}).one_or_none()
    return LiveSession(**_user_values(row), has_stepped_up=row.has_stepped_up) if row is not None else None


def is_expired_api_key(session: Session, key_hash: bytes) -> bool:
    """Tell whether a key is refused only because it has expired."""
    return bool(session.execute(_EXPIRED_API_KEY, {"hash": key_hash}).scalar_one())


def find_live_attribution(session: Session, claims: AttributionClaims) -> LiveAttribution | None:
    """Read whom an attribution names; None when the identity or the distribution is disabled or gone."""
    parameters = {
        "principal": claims.principal_id,
        "payer": claims.payer_id,
        "distribution": claims.distribution_id,
    }
    row = session.execute(_ATTRIBUTION, parameters).one_or_none()
    if row is None:
        return None
    return LiveAttribution(
        owner_kind=OwnerKind(row.owner_kind),
        organization_id=row.organization_id,
        is_suspended=row.is_suspended,
    )


def _user_values(row: Row[Any]) -> dict[str, Any]:
    return {
        "id": row.id,
        "user_id": row.user_id,
        "is_operator": row.is_operator and row.bound_organization_id is None,
        "bound_organization_id": row.bound_organization_id,
        "organization_id": row.organization_id,
        "permissions_by_scope": member_permissions(row.organization_id, row.role, row.bindings),
        "is_suspended": row.is_suspended,
        "used_recently": row.used_recently,
    }


def is_live(columns: Any) -> ColumnElement[bool]:
    """Tell, in SQL, that a secret's row is neither revoked nor expired."""
    return and_(
        columns.revoked_at.is_(None), or_(columns.expires_at.is_(None), columns.expires_at > func.now())
    )


def used_recently(last_used_at: ColumnElement[Any]) -> Any:
    """Select whether a last use is on record from the last minute."""
    return func.coalesce(last_used_at > func.now() - func.make_interval(0, 0, 0, 0, 0, 1), False).label(
        "used_recently"
    )


# Built once: assembling a statement costs more than running it.

_suspended = organizations.c.suspended_at.is_not(None)
_RUNTIME = (
    select(
        deployments.c.organization_id,
        deployments.c.daemon_identity_id,
        _suspended.label("is_suspended"),
        bindings_of(role_bindings.c.subject_identity_id == deployments.c.daemon_identity_id),
    )
    .join(organizations, organizations.c.id == deployments.c.organization_id)
    .join(identities, identities.c.id == deployments.c.daemon_identity_id)
    .join(versions, versions.c.deployment_id == deployments.c.id)
    .join(client_credentials, client_credentials.c.deployment_id == deployments.c.id)
    .where(
        deployments.c.id == bindparam("deployment"),
        deployments.c.client_id == bindparam("client"),
        deployments.c.disabled_at.is_(None),
        identities.c.disabled_at.is_(None),
        versions.c.id == bindparam("version"),
        versions.c.revoked_at.is_(None),
        client_credentials.c.id == bindparam("credential"),
        is_live(client_credentials.c),
        ~exists().where(revoked_tokens.c.jti == bindparam("token")),
    )
)
_user_bindings = bindings_of(
    and_(
        role_bindings.c.subject_user_id == users.c.id,
        role_bindings.c.organization_id == memberships.c.organization_id,
    )
)


def _is_membership_in(*organizations_in_turn: ColumnElement[Any]) -> ColumnElement[bool]:
    """Match the user's membership in the first of these that is named: the organization that they act in."""
    acting_in = func.coalesce(*organizations_in_turn)
    return and_(memberships.c.user_id == users.c.id, memberships.c.organization_id == acting_in)


_API_KEY = (
    select(
        api_keys.c.id,
        api_keys.c.user_id,
        api_keys.c.organization_id.label("bound_organization_id"),
        users.c.is_operator,
        memberships.c.organization_id,
        memberships.c.role,
        _suspended.label("is_suspended"),
        used_recently(api_keys.c.last_used_at),
        _user_bindings,
    )
    .join(users, users.c.id == api_keys.c.user_id)
    .outerjoin(
        memberships,
        _is_membership_in(
            api_keys.c.organization_id, bindparam("acting_in", type_=Uuid), users.c.active_organization_id
        ),
    )
    .outerjoin(organizations, organizations.c.id == memberships.c.organization_id)
    .where(
        api_keys.c.hash == bindparam("hash"),
        is_live(api_keys.c),
        users.c.disabled_at.is_(None),
        or_(api_keys.c.organization_id.is_(None), memberships.c.organization_id.is_not(None)),
    )
)
_SESSION = (
    select(
        console_sessions.c.id,
        console_sessions.c.user_id,
        null().label("bound_organization_id"),
        users.c.is_operator,
        memberships.c.organization_id,
        memberships.c.role,
        _suspended.label("is_suspended"),
        used_recently(console_sessions.c.last_used_at),
        (console_sessions.c.stepped_up_at > func.now() - STEP_UP).label("has_stepped_up"),
        _user_bindings,
    )
    .join(users, users.c.id == console_sessions.c.user_id)
    .outerjoin(
        memberships,
        _is_membership_in(
            bindparam("acting_in", type_=Uuid),
            console_sessions.c.organization_id,
            users.c.active_organization_id,
        ),
    )
    .outerjoin(organizations, organizations.c.id == memberships.c.organization_id)
    .where(
        console_sessions.c.hash == bindparam("hash"),
        is_live(console_sessions.c),
        console_sessions.c.last_used_at > func.now() - IDLE,
        users.c.disabled_at.is_(None),
    )
)
_EXPIRED_API_KEY = select(
    exists().where(
        api_keys.c.hash == bindparam("hash"),
        api_keys.c.revoked_at.is_(None),
        api_keys.c.expires_at <= func.now(),
    )
)
_payers = organizations.alias("payers")
_ATTRIBUTION = (
    select(
        identities.c.kind.label("owner_kind"),
        identities.c.organization_id,
        or_(_suspended, _payers.c.suspended_at.is_not(None)).label("is_suspended"),
    )
    .join(organizations, organizations.c.id == identities.c.organization_id)
    .join(_payers, _payers.c.id == bindparam("payer"))
    .where(
        identities.c.id == bindparam("principal"),
        identities.c.disabled_at.is_(None),
        or_(
            bindparam("distribution", type_=Uuid).is_(None),
            exists().where(
                distributions.c.id == bindparam("distribution", type_=Uuid),
                distributions.c.disabled_at.is_(None),
            ),
        ),
    )
)
