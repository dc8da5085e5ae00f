"""Read, in one statement each, everything about a credential that may have changed since it was issued.

Whatever was disabled (deployment, version, secret, daemon, key, user, membership, distribution, organization) makes
its credentials worthless from the next reading on. A function gives None for a worthless credential;
`authenticator.py` makes callers of the rows and caches them. A credential that has expired admits no new request
(`find_live_`), and does not end what was begun with it (`find_unrevoked_`).
"""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select

from shared.db.database import Session
from shared.identity.access.callers import OwnerKind
from shared.identity.access.claims import AccessClaims, AttributionClaims
from shared.identity.access.effective_permissions import (
    PermissionsByScope,
    identity_permissions,
    member_permissions,
)
from shared.identity.authentication.credential_statements import (
    ATTRIBUTION,
    EXPIRED_API_KEY,
    LIVE_API_KEY,
    LIVE_RUNTIME,
    LIVE_SESSION,
    UNREVOKED_API_KEY,
    UNREVOKED_RUNTIME,
    UNREVOKED_SESSION,
)


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
    return _find_runtime(session, LIVE_RUNTIME, claims)


def find_unrevoked_runtime(session: Session, claims: AccessClaims) -> LiveRuntime | None:
    """Read what the access token of work under way names; None when any of it is disabled, revoked or gone."""
    return _find_runtime(session, UNREVOKED_RUNTIME, claims)


def find_live_api_key(
    session: Session, key_hash: bytes, *, acting_in: UUID | None = None
) -> LiveApiKey | None:
    """Read a user's key; None when it is unknown, expired or revoked, or its user has lost the right to it.

    `acting_in` keeps a call in its organization if its user has selected another meanwhile.
    """
    return _find_api_key(session, LIVE_API_KEY, key_hash, acting_in)


def find_unrevoked_api_key(session: Session, key_hash: bytes, *, acting_in: UUID | None) -> LiveApiKey | None:
    """Read the key of work under way, which may have expired; None as for a new request otherwise."""
    return _find_api_key(session, UNREVOKED_API_KEY, key_hash, acting_in)


def find_live_session(
    session: Session, token_hash: bytes, *, acting_in: UUID | None = None
) -> LiveSession | None:
    """Read a session of the console; None when it is unknown, over, idle or revoked, or its user is disabled."""
    return _find_session(session, LIVE_SESSION, token_hash, acting_in)


def find_unrevoked_session(
    session: Session, token_hash: bytes, *, acting_in: UUID | None
) -> LiveSession | None:
    """Read the session of work under way, which may be over or idle; None as for a new request otherwise."""
    return _find_session(session, UNREVOKED_SESSION, token_hash, acting_in)


def is_expired_api_key(session: Session, key_hash: bytes) -> bool:
    """Tell whether a key is refused only because it has expired."""
    return bool(session.execute(EXPIRED_API_KEY, {"hash": key_hash}).scalar_one())


def find_live_attribution(session: Session, claims: AttributionClaims) -> LiveAttribution | None:
    """Read whom an attribution names; None when the identity or the distribution is disabled or gone."""
    parameters = {
        "principal": claims.principal_id,
        "payer": claims.payer_id,
        "distribution": claims.distribution_id,
    }
    row = session.execute(ATTRIBUTION, parameters).one_or_none()
    if row is None:
        return None
    return LiveAttribution(
        owner_kind=OwnerKind(row.owner_kind),
        organization_id=row.organization_id,
        is_suspended=row.is_suspended,
    )


def _find_runtime(session: Session, statement: Select[Any], claims: AccessClaims) -> LiveRuntime | None:
    parameters = {
        "deployment": claims.deployment_id,
        "client": claims.client_id,
        "version": claims.version_id,
        "credential": claims.credential_id,
        "token": claims.token_id,
    }
    row = session.execute(statement, parameters).one_or_none()
    if row is None:
        return None
    return LiveRuntime(
        organization_id=row.organization_id,
        daemon_id=row.daemon_identity_id,
        permissions_by_scope=identity_permissions(row.bindings),
        is_suspended=row.is_suspended,
    )


def _find_api_key(
    session: Session, statement: Select[Any], key_hash: bytes, acting_in: UUID | None
) -> LiveApiKey | None:
    row = session.execute(statement, {"hash": key_hash, "acting_in": acting_in}).one_or_none()
    return LiveApiKey(**_user_values(row)) if row is not None else None


def _find_session(
    session: Session, statement: Select[Any], token_hash: bytes, acting_in: UUID | None
) -> LiveSession | None:
    row = session.execute(statement, {"hash": token_hash, "acting_in": acting_in}).one_or_none()
    return LiveSession(**_user_values(row), has_stepped_up=row.has_stepped_up) if row is not None else None


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
