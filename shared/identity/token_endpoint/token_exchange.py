"""The token endpoint: exchange a client secret for an access token, revoke tokens and introspect them.

The endpoint implements the client credentials grant (RFC 6749 4.4), revocation (RFC 7009) and introspection (RFC
7662). It issues no refresh tokens. A client revokes and introspects only its own tokens.
"""

from dataclasses import dataclass
from typing import Any, TypedDict, Unpack
from uuid import UUID

from sqlalchemy import Row, and_, bindparam, func, select, update

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller, Executor, ExecutorKind
from shared.identity.access.claims import AccessClaims
from shared.identity.access.effective_permissions import bindings_of, identity_permissions
from shared.identity.access.permissions import TOKEN_PERMISSIONS, Permission
from shared.identity.audit import record
from shared.identity.authentication.credential_lookup import find_live_runtime
from shared.identity.authentication.credential_statements import is_live, used_recently
from shared.identity.errors import InvalidClient, InvalidScope, UnauthorizedClient
from shared.identity.secrets import Prefix, hash_secret, is_well_formed
from shared.identity.tables import (
    client_credentials,
    deployments,
    identities,
    organizations,
    role_bindings,
    versions,
)
from shared.identity.tokens.access_tokens import (
    AccessToken,
    mint_access_token,
    revoke_token,
    verify_access_token,
    write_scope,
)
from shared.identity.tokens.jws import TokenRefused
from shared.identity.tokens.signing_keys import SigningKeys

MAX_SCOPE_CHARACTERS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """An authenticated deployment. `version_id` is None while no version is active."""

    client_id: UUID
    credential_id: UUID
    deployment_id: UUID
    organization_id: UUID
    daemon_id: UUID
    version_id: UUID | None
    permissions: frozenset[Permission]
    is_suspended: bool


class PresentedToken(TypedDict):
    """A token to revoke or introspect, with the client's own credentials."""

    client_id: str
    client_secret: str
    token: str


def authenticate_client(database: Database, *, client_id: str, client_secret: str) -> Client:
    """Return the deployment of a client id and secret. Raises InvalidClient."""
    # Raise one error for every cause, so that a client id cannot be probed.
    if not is_well_formed(client_secret, Prefix.CLIENT_SECRET):
        raise InvalidClient
    with database.transaction() as session:
        row = session.execute(_CLIENT, {"hash": hash_secret(client_secret)}).one_or_none()
        if row is None or str(row.client_id) != client_id:
            raise InvalidClient
        if not row.used_recently:
            _note_use(session, row.credential_id)
    return _client(row)


def exchange(
    database: Database,
    settings: Settings,
    keys: SigningKeys,
    *,
    client_id: str,
    client_secret: str,
    scope: str | None = None,
) -> AccessToken:
    """Exchange a client id and secret for a short-lived access token. Narrow the token to `scope` if it is given.

    Raises InvalidClient, InvalidScope, and UnauthorizedClient if the organization is suspended or no version is
    active.
    """
    client = authenticate_client(database, client_id=client_id, client_secret=client_secret)
    return issue_token(keys, settings, client, scope)


def find_client(session: Session, credential_id: UUID) -> Client:
    """Return the client of a live credential. Raises InvalidClient."""
    row = session.execute(
        _CLIENTS.where(client_credentials.c.id == bindparam("id")), {"id": credential_id}
    ).one_or_none()
    if row is None:
        raise InvalidClient
    if not row.used_recently:
        _note_use(session, row.credential_id)
    return _client(row)


def issue_token(keys: SigningKeys, settings: Settings, client: Client, scope: str | None) -> AccessToken:
    """Issue an access token to an authenticated client. Raises UnauthorizedClient, InvalidScope."""
    if client.is_suspended:
        raise UnauthorizedClient("The organization is suspended.")
    if client.version_id is None:
        raise UnauthorizedClient("The deployment has no active version.")
    return mint_access_token(
        keys,
        settings,
        client_id=client.client_id,
        credential_id=client.credential_id,
        deployment_id=client.deployment_id,
        version_id=client.version_id,
        organization_id=client.organization_id,
        daemon_id=client.daemon_id,
        scope=_narrow(client.permissions, scope),
    )


def revoke(
    database: Database,
    settings: Settings,
    keys: SigningKeys,
    *,
    request_id: str | None = None,
    client_address: str | None = None,
    **presented: Unpack[PresentedToken],
) -> None:
    """Revoke one of the client's own access tokens; any other token is ignored. Raises InvalidClient."""
    # Ignore an invalid token, which is already unusable, instead of raising an error (RFC 7009 2.2).
    client, claims = _find_own_claims(database, settings, keys, presented)
    if claims is None:
        return
    actor = Actor(caller=_caller(client), request_id=request_id, client_address=client_address)
    with database.transaction() as session:
        if revoke_token(session, claims):
            record(
                session,
                actor,
                "access_token.revoked",
                claims.token_id,
                organization_id=client.organization_id,
                deployment_id=client.deployment_id,
            )


def introspect(
    database: Database, settings: Settings, keys: SigningKeys, **presented: Unpack[PresentedToken]
) -> dict[str, Any]:
    """Return the description of a token (RFC 7662 2.2).

    If the token is not a live token of this client, the description is `{"active": false}`.
    """
    _, claims = _find_own_claims(database, settings, keys, presented)
    if claims is None:
        return {"active": False}
    with database.transaction() as session:
        runtime = find_live_runtime(session, claims)
    # If a request with this token would be refused for any reason, report the token as inactive.
    if runtime is None or runtime.is_suspended:
        return {"active": False}
    return {
        "active": True,
        "token_type": "Bearer",
        "scope": write_scope(claims.scope),
        "client_id": str(claims.client_id),
        "sub": str(claims.client_id),
        "iss": settings.base_url,
        "aud": settings.base_url,
        "iat": claims.issued_at_seconds,
        "exp": claims.expires_at_seconds,
        "jti": claims.token_id,
        "deployment_id": str(claims.deployment_id),
        "version_id": str(claims.version_id),
    }


def _narrow(held: frozenset[Permission], scope: str | None) -> frozenset[Permission]:
    """Return the permissions in the requested scope, or all if none is requested.

    Raises InvalidScope if a requested permission is unknown or the client does not hold it.
    """
    if scope is None:
        return held
    names = set(scope.split(" ")) if len(scope) <= MAX_SCOPE_CHARACTERS else set()
    requested = {permission for permission in held if permission in names}
    if not names or names != requested:
        raise InvalidScope
    return frozenset(requested)


def _find_own_claims(
    database: Database, settings: Settings, keys: SigningKeys, presented: PresentedToken
) -> tuple[Client, AccessClaims | None]:
    """Return the client, and the claims of the token if it belongs to this client. Raises InvalidClient."""
    client = authenticate_client(
        database, client_id=presented["client_id"], client_secret=presented["client_secret"]
    )
    try:
        claims = verify_access_token(keys, settings, presented["token"])
    except TokenRefused:
        return client, None
    return client, claims if claims.client_id == client.client_id else None


def _caller(client: Client) -> Caller:
    """Return the client as a caller with the deployment's daemon as executor, for the audit log."""
    return Caller(
        executor=Executor(kind=ExecutorKind.DAEMON_IDENTITY, id=client.daemon_id),
        credential_id=client.credential_id,
        organization_id=client.organization_id,
        owner=None,
        payer_id=None,
        deployment_id=client.deployment_id,
    )


def _note_use(session: Session, credential_id: UUID) -> None:
    statement = update(client_credentials).where(client_credentials.c.id == credential_id)
    session.execute(statement.values(last_used_at=func.now()))


def _client(row: Row[Any]) -> Client:
    held = identity_permissions(row.bindings).values()
    return Client(
        client_id=row.client_id,
        credential_id=row.credential_id,
        deployment_id=row.deployment_id,
        organization_id=row.organization_id,
        daemon_id=row.daemon_identity_id,
        version_id=row.version_id,
        permissions=frozenset[Permission]().union(*held) & TOKEN_PERMISSIONS,
        is_suspended=row.is_suspended,
    )


_CLIENTS = (
    select(
        client_credentials.c.id.label("credential_id"),
        deployments.c.client_id,
        deployments.c.id.label("deployment_id"),
        deployments.c.organization_id,
        deployments.c.daemon_identity_id,
        versions.c.id.label("version_id"),
        organizations.c.suspended_at.is_not(None).label("is_suspended"),
        used_recently(client_credentials.c.last_used_at),
        bindings_of(role_bindings.c.subject_identity_id == deployments.c.daemon_identity_id),
    )
    .join(deployments, deployments.c.id == client_credentials.c.deployment_id)
    .join(organizations, organizations.c.id == deployments.c.organization_id)
    .join(identities, identities.c.id == deployments.c.daemon_identity_id)
    # Use an outer join: a client without an active version authenticates here and gets a more precise error later.
    .outerjoin(
        versions, and_(versions.c.id == deployments.c.active_version_id, versions.c.revoked_at.is_(None))
    )
    .where(
        is_live(client_credentials.c),
        deployments.c.disabled_at.is_(None),
        identities.c.disabled_at.is_(None),
    )
)
_CLIENT = _CLIENTS.where(client_credentials.c.secret_hash == bindparam("hash"))
