"""Read the current state of a credential, with one statement per kind of credential.

Each function returns None if the credential is not valid: it, or a row that it depends on (deployment, version,
secret, daemon, user, membership, distribution), was disabled, revoked or deleted. Functions `find_live_…` are for
new requests and also refuse expired credentials. Functions `find_unrevoked_…` are for running requests and ignore
expiry. `is_suspended` reports a suspended organization.
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
    """A valid access token: the deployment's organization, its current daemon and the daemon's permissions by scope."""

    organization_id: UUID
    daemon_id: UUID
    permissions_by_scope: PermissionsByScope
    is_suspended: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveApiKey:
    """A user's key. `organization_id` is the organization in which the user acts, or None if none is selected."""

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
    """A user's console session, which acts like an unbound key in the organization that the session selects."""

    has_stepped_up: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveAttribution:
    """The owner that an attribution names, and whether the owner's or the payer's organization is suspended."""

    owner_kind: OwnerKind
    organization_id: UUID
    is_suspended: bool


def find_live_runtime(session: Session, claims: AccessClaims) -> LiveRuntime | None:
    """Return the deployment of an access token, or None if any row that the token names is invalid or has expired."""
    return _find_runtime(session, LIVE_RUNTIME, claims)


def find_unrevoked_runtime(session: Session, claims: AccessClaims) -> LiveRuntime | None:
    """Return the deployment of a running request's access token, or None if any row that the token names is revoked."""
    return _find_runtime(session, UNREVOKED_RUNTIME, claims)


def find_live_api_key(
    session: Session, key_hash: bytes, *, acting_in: UUID | None = None
) -> LiveApiKey | None:
    """Return a user's key, or None if it is unknown, expired or revoked, or its user is disabled or no longer a member.

    `acting_in` keeps a request in the organization that it began in, even if its user has since selected another.
    """
    return _find_api_key(session, LIVE_API_KEY, key_hash, acting_in)


def find_unrevoked_api_key(session: Session, key_hash: bytes, *, acting_in: UUID | None) -> LiveApiKey | None:
    """Return the key of a running request, under the conditions of `find_live_api_key` except the key's expiry."""
    return _find_api_key(session, UNREVOKED_API_KEY, key_hash, acting_in)


def find_live_session(
    session: Session, token_hash: bytes, *, acting_in: UUID | None = None
) -> LiveSession | None:
    """Return a console session, or None if it is unknown, expired, idle or revoked, or its user is disabled."""
    return _find_session(session, LIVE_SESSION, token_hash, acting_in)


def find_unrevoked_session(
    session: Session, token_hash: bytes, *, acting_in: UUID | None
) -> LiveSession | None:
    """Return the session of a running request, under the conditions of `find_live_session` except expiry and idling."""
    return _find_session(session, UNREVOKED_SESSION, token_hash, acting_in)


def is_expired_api_key(session: Session, key_hash: bytes) -> bool:
    """Return whether a key is refused only because it has expired."""
    return bool(session.execute(EXPIRED_API_KEY, {"hash": key_hash}).scalar_one())


def find_live_attribution(session: Session, claims: AttributionClaims) -> LiveAttribution | None:
    """Return the owner of an attribution, or None if its identity, payer or distribution is disabled or deleted."""
    parameters = {
        "principal": claims.principal_id,
        "payer": claims.payer_id,
        "distribution": claims.distribution_id,
    }
    # Running requests use this function too, because the statement does not read the claims' expiry.
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
        # A key that is bound to an organization acts only in that organization, so it does not make its user an
        # operator.
        "is_operator": row.is_operator and row.bound_organization_id is None,
        "bound_organization_id": row.bound_organization_id,
        "organization_id": row.organization_id,
        "permissions_by_scope": member_permissions(row.organization_id, row.role, row.bindings),
        "is_suspended": row.is_suspended,
        "used_recently": row.used_recently,
    }
