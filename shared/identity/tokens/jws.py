"""Sign and verify our compact JWS: ES256, a key id, an explicit type, and nothing else in the header.

A header that differs from what we write is refused before any cryptography: that settles `none`, other algorithms,
`jwk`, `jku`, `x5u`, `crit` and `b64`, and keeps a token of one type from passing as another (RFC 8725 3.11). Keys
come from our own set, never from a token.
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
    """A token is not one of ours; the message is for tests and never reaches the sender."""


class TokenExpired(TokenRefused):
    """A token was ours, and its time is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """The claims of a token whose signature holds, and the key that made it."""

    kid: str
    claims: Mapping[str, Any]


def sign(claims: dict[str, Any], *, typ: str, kid: str, key: ECKey) -> str:
    """Make a compact JWS."""
    return jwt.encode({"alg": ALGORITHM, "typ": typ, "kid": kid}, claims, key, [ALGORITHM])


def verify(token: str, *, typ: str, find_key: FindKey) -> Verified:
    """Check form, header, key and signature, in that order; raise TokenRefused."""
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
    """Check issuer, audience (one string) and times against our database's clock; raises TokenRefused.

    The leeway is for the moment of issue only. Expiry is exact: issuer and verifier read the same clock.
    """
    if claims.get("iss") != issuer or claims.get("aud") != audience:
        raise TokenRefused("issuer or audience")
    if seconds(claims, "iat") > now + CLOCK_LEEWAY_SECONDS:
        raise TokenRefused("issued in the future")
    if seconds(claims, "exp") <= now:
        raise TokenExpired("expired")


def seconds(claims: Mapping[str, Any], name: str) -> int:
    """Read a point in time, whole seconds since 1970; nothing but an integer will do."""
    value = claims.get(name)
    if type(value) is not int:
        raise TokenRefused(name)
    return value


def text(claims: Mapping[str, Any], name: str) -> str:
    """Read a non-empty string."""
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise TokenRefused(name)
    return value


def identifier(claims: Mapping[str, Any], name: str) -> UUID:
    """Read an id in its canonical spelling."""
    value = text(claims, name)
    try:
        parsed = UUID(value)
    except ValueError as error:
        raise TokenRefused(name) from error
    if str(parsed) != value:
        raise TokenRefused(name)
    return parsed
