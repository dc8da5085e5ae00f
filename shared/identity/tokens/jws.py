"""Sign and verify the service's own tokens: compact JWS with ES256, and a key id and explicit type in the header.

Verification uses only keys of the service's own key set, never a key from a token.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import ECKey

ALGORITHM = "ES256"
MAX_TOKEN_CHARACTERS = 4096
CLOCK_LEEWAY_SECONDS = 30
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)

FindKey = Callable[[str], ECKey | None]


class TokenRefused(Exception):
    """A token is invalid. The message names the failed check, for logs and tests; it is never sent to the client."""


class TokenExpired(TokenRefused):
    """A token of the service has expired and is otherwise valid."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The claims of a token with a valid signature, and the id of its key."""

    kid: str
    claims: Mapping[str, Any]


def sign(claims: dict[str, Any], *, typ: str, kid: str, key: ECKey) -> str:
    """Return the claims as a compact JWS."""
    return jwt.encode({"alg": ALGORITHM, "typ": typ, "kid": kid}, claims, key, [ALGORITHM])


def verify(token: str, *, typ: str, find_key: FindKey) -> Verified:
    """Return the claims of a token after checking format, header, key and signature, in that order.

    Raises TokenRefused.
    """
    if len(token) > MAX_TOKEN_CHARACTERS or _COMPACT.fullmatch(token) is None:
        raise TokenRefused("form")
    try:
        return _verify(token, typ, find_key)
    except (JoseError, ValueError, RecursionError) as error:
        raise TokenRefused(type(error).__name__) from error


def _verify(token: str, typ: str, find_key: FindKey) -> Verified:
    signature = jws.extract_compact(token.encode())
    header = signature.headers()
    kid = header.get("kid")
    # Refuse every header that the service does not write, before any cryptography. This excludes `none`, other
    # algorithms, `jwk`, `jku`, `x5u`, `crit` and `b64`, and tokens of another type (RFC 8725 3.11).
    if not isinstance(kid, str) or header != {"alg": ALGORITHM, "typ": typ, "kid": kid}:
        raise TokenRefused("header")
    key = find_key(kid)
    if key is None:
        raise TokenRefused("kid")
    if not jws.validate_compact(signature, key, [ALGORITHM]):
        raise TokenRefused("signature")
    claims = json.loads(signature.payload)
    if not isinstance(claims, dict):
        raise TokenRefused("claims")
    return Verified(kid=kid, claims=claims)


def require_issued_for(claims: Mapping[str, Any], *, issuer: str, audience: str, now: float) -> None:
    """Check issuer and audience (each one string), and the times by the database's clock.

    Raises TokenExpired, TokenRefused.
    """
    if claims.get("iss") != issuer or claims.get("aud") != audience:
        raise TokenRefused("issuer or audience")
    # Allow a leeway for the time of issue, because each process extrapolates `now`. Expiry has no leeway.
    if seconds(claims, "iat") > now + CLOCK_LEEWAY_SECONDS:
        raise TokenRefused("issued in the future")
    if seconds(claims, "exp") <= now:
        raise TokenExpired("expired")


def seconds(claims: Mapping[str, Any], name: str) -> int:
    """Return a claim that is a time in whole seconds since 1970. Raises TokenRefused for any other type."""
    value = claims.get(name)
    # Compare the type instead of using `isinstance`, because True is an int too.
    if type(value) is not int:
        raise TokenRefused(name)
    return value


def text(claims: Mapping[str, Any], name: str) -> str:
    """Return a claim that is a non-empty string. Raises TokenRefused."""
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise TokenRefused(name)
    return value


def identifier(claims: Mapping[str, Any], name: str) -> UUID:
    """Return a claim that is a UUID in its canonical form. Raises TokenRefused."""
    value = text(claims, name)
    try:
        parsed = UUID(value)
    except ValueError as error:
        raise TokenRefused(name) from error
    if str(parsed) != value:
        raise TokenRefused(name)
    return parsed
