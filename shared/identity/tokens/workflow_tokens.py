"""Tokens of GitHub Actions workflows (OpenID Connect): who signed one, and which repository and run it speaks of.

`sub` is never looked at: its form can be customized, and has changed. Unknown claims are ignored.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from joserfc import jws
from joserfc.errors import JoseError

from shared.identity.tokens.jwks_client import IssuerKeys
from shared.identity.tokens.jws import CLOCK_LEEWAY_SECONDS, TokenRefused, seconds, text

ALGORITHM = "RS256"
MAXIMUM_CHARACTERS = 8192
_HEADER = frozenset({"alg", "typ", "kid", "x5t"})
_PULL_REQUEST_OF_STRANGERS = "pull_request_target"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowClaims:
    """What a good token says; ids are GitHub's immutable numbers, as it writes them."""

    issuer: str
    token_id: str
    repository: str
    repository_id: str
    repository_owner_id: str
    ref: str
    sha: str
    environment: str | None
    expires_at_seconds: int


def verify_workflow_token(keys: IssuerKeys, token: str, *, audience: str, now: float) -> WorkflowClaims:
    """Check form, header, issuer, signature, audience and times; raise TokenRefused."""
    if len(token) > MAXIMUM_CHARACTERS or not token.isascii():
        raise TokenRefused("form")
    try:
        claims = _verify(keys, token)
    except (JoseError, ValueError, RecursionError) as error:
        raise TokenRefused(type(error).__name__) from error
    if claims.get("aud") != audience:  # a list, too, is none of ours
        raise TokenRefused("audience")
    _require_time(claims, now)
    if text(claims, "event_name") == _PULL_REQUEST_OF_STRANGERS:
        raise TokenRefused("event")
    return WorkflowClaims(
        issuer=text(claims, "iss"),
        token_id=text(claims, "jti"),
        repository=text(claims, "repository"),
        repository_id=text(claims, "repository_id"),
        repository_owner_id=text(claims, "repository_owner_id"),
        ref=text(claims, "ref"),
        sha=text(claims, "sha"),
        environment=text(claims, "environment") if "environment" in claims else None,
        expires_at_seconds=seconds(claims, "exp"),
    )


def _verify(keys: IssuerKeys, token: str) -> Mapping[str, Any]:
    """Find the issuer's key by what the token claims, and believe nothing before its signature holds."""
    signature = jws.extract_compact(token.encode())
    header = signature.headers()
    kid = header.get("kid")
    if header.get("alg") != ALGORITHM or not isinstance(kid, str) or not _HEADER.issuperset(header):
        raise TokenRefused("header")
    claims = json.loads(signature.payload)
    if not isinstance(claims, dict):
        raise TokenRefused("claims")
    key = keys.find(text(claims, "iss"), kid)
    if key is None:
        raise TokenRefused("issuer or key")
    if not jws.validate_compact(signature, key, [ALGORITHM]):
        raise TokenRefused("signature")
    return claims


def _require_time(claims: Mapping[str, Any], now: float) -> None:
    """Compare with our database's clock, which is not the issuer's."""
    for name in ("iat", "nbf"):
        if name in claims and seconds(claims, name) > now + CLOCK_LEEWAY_SECONDS:
            raise TokenRefused(name)
    if (
        seconds(claims, "iat") > seconds(claims, "exp")
        or seconds(claims, "exp") <= now - CLOCK_LEEWAY_SECONDS
    ):
        raise TokenRefused("exp")
