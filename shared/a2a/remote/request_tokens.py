"""Request tokens: the `Authorization` header proves to a deployment's server that this service sends the request.

A request token is a compact JWS for one deployment (its audience) and is minted for each request. Servers verify a
token with the published keys (`/.well-known/jwks.json`). Attributions are signed with the same key, so the header `typ`
distinguishes a request token from an attribution.
"""

from uuid import UUID, uuid4

from shared.config.settings import Settings
from shared.identity.tokens.key_rotation import REQUEST_TOKEN_SECONDS, KeyPurpose
from shared.identity.tokens.signing_keys import SigningKeys

TYPE = "agent-request+jwt"
SUBJECT = "quartermaster"


def mint_request_token(keys: SigningKeys, settings: Settings, deployment_id: UUID) -> str:
    """Return a signed token for one request to a deployment's server."""
    issued_at = int(keys.now())
    claims = {
        "iss": settings.base_url,
        "aud": str(deployment_id),
        "sub": SUBJECT,
        "iat": issued_at,
        "exp": issued_at + REQUEST_TOKEN_SECONDS,
        "jti": str(uuid4()),
    }
    return keys.sign(KeyPurpose.ATTRIBUTION, claims, typ=TYPE)
