"""Request tokens: the `Authorization` header that proves to a deployment's own server who sends a request.

A compact JWS with its own type, bound to one deployment by its audience and minted for each request. Servers verify it
with the published keys (`/.well-known/jwks.json`). It is signed with the key of attributions; the type distinguishes
the two.
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
