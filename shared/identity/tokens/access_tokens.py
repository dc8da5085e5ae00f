"""The Version access token: a JWT (RFC 9068) that a deployment obtains in exchange for its client secret.

The token names the deployment, the version that was active at issue, and the client secret. Every use reads the
rows that the token names (`shared/identity/authentication/credential_lookup.py`). The token's scope narrows the
daemon's roles and never widens them.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import UUID, uuid4

from sqlalchemy.dialects.postgresql import insert

from shared.config.settings import Settings
from shared.db.database import Session
from shared.identity.access.claims import AccessClaims
from shared.identity.access.permissions import TOKEN_PERMISSIONS, Permission
from shared.identity.tables import revoked_tokens
from shared.identity.tokens.jws import TokenRefused, identifier, seconds, text
from shared.identity.tokens.key_rotation import KeyPurpose
from shared.identity.tokens.signing_keys import SigningKeys

TYPE = "at+jwt"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """A new access token and the other fields of the token endpoint's response."""

    value: str = field(repr=False)
    expires_in_seconds: int
    scope: str


def mint_access_token(
    keys: SigningKeys,
    settings: Settings,
    *,
    client_id: UUID,
    credential_id: UUID,
    deployment_id: UUID,
    version_id: UUID,
    organization_id: UUID,
    daemon_id: UUID,
    scope: frozenset[Permission],
) -> AccessToken:
    """Sign an access token for an authenticated client."""
    issued_at = int(keys.now())
    scope_text = write_scope(scope)
    claims = {
        "iss": settings.base_url,
        "aud": settings.base_url,
        "sub": str(client_id),
        "client_id": str(client_id),
        "iat": issued_at,
        "exp": issued_at + settings.access_token_seconds,
        "jti": str(uuid4()),
        "scope": scope_text,
        "deployment_id": str(deployment_id),
        "version_id": str(version_id),
        "credential_id": str(credential_id),
        "organization_id": str(organization_id),
        "daemon_id": str(daemon_id),
    }
    value = keys.sign(KeyPurpose.ACCESS, claims, typ=TYPE)
    return AccessToken(value=value, expires_in_seconds=settings.access_token_seconds, scope=scope_text)


def verify_access_token(keys: SigningKeys, settings: Settings, token: str) -> AccessClaims:
    """Return the claims of an access token if its signature, type, issuer, audience and times are valid.

    Raises TokenExpired, TokenRefused.
    """
    verified = keys.verify(KeyPurpose.ACCESS, token, typ=TYPE, audience=settings.base_url)
    claims = verified.claims
    if claims.get("sub") != claims.get("client_id"):
        raise TokenRefused("sub")
    return AccessClaims(
        token_id=text(claims, "jti"),
        kid=verified.kid,
        client_id=identifier(claims, "client_id"),
        credential_id=identifier(claims, "credential_id"),
        deployment_id=identifier(claims, "deployment_id"),
        version_id=identifier(claims, "version_id"),
        scope=_read_scope(claims.get("scope")),
        issued_at_seconds=seconds(claims, "iat"),
        expires_at_seconds=seconds(claims, "exp"),
    )


def revoke_token(session: Session, claims: AccessClaims) -> bool:
    """Store a token as revoked. Return False if the token was already revoked."""
    # `shared/identity/sweeps.py` deletes the row after the token has expired.
    expires_at = datetime.fromtimestamp(claims.expires_at_seconds, tz=UTC)
    added = insert(revoked_tokens).values(jti=claims.token_id, expires_at=expires_at).on_conflict_do_nothing()
    return session.execute(added).rowcount > 0


def write_scope(permissions: frozenset[Permission]) -> str:
    """Return a scope as OAuth writes it: sorted names with single spaces."""
    return " ".join(sorted(permissions))


def _read_scope(value: object) -> frozenset[Permission]:
    if not isinstance(value, str):
        raise TokenRefused("scope")
    # Ignore unknown names: they grant no permission.
    names = set(value.split())
    return frozenset(permission for permission in TOKEN_PERMISSIONS if permission in names)
