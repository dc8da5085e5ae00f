"""Verify the OpenID Connect tokens of GitHub Actions workflows, and read the repository and run that they name."""

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
# This event runs for anyone's pull request with the ref of the base branch. So the ref alone does not show a pull
# request.
_PULL_REQUEST_TARGET = "pull_request_target"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowClaims:
    """The claims of a verified workflow token; ids are GitHub's immutable numbers, as text."""

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
    """Return the claims of a workflow token after checking format, header, issuer, signature, audience and times.

    `now` is in seconds since 1970. Raises TokenRefused.
    """
    if len(token) > MAXIMUM_CHARACTERS or not token.isascii():
        raise TokenRefused("form")
    try:
        claims = _verify(keys, token)
    except (JoseError, ValueError, RecursionError) as error:
        raise TokenRefused(type(error).__name__) from error
    if claims.get("aud") != audience:  # refuse a list too: such a token is also for other services
        raise TokenRefused("audience")
    _require_time(claims, now)
    if text(claims, "event_name") == _PULL_REQUEST_TARGET:
        raise TokenRefused("event")
    # Do not read `sub`, because repositories can customize its format.
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
    """Return the claims of a token with a valid signature. Raises TokenRefused.

    The unverified claims are used only to select one of the trusted issuers' keys.
    """
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
    """Check the times with a leeway in both directions, because the issuer has its own clock. Raises TokenRefused."""
    for name in ("iat", "nbf"):
        if name in claims and seconds(claims, name) > now + CLOCK_LEEWAY_SECONDS:
            raise TokenRefused(name)
    if (
        seconds(claims, "iat") > seconds(claims, "exp")
        or seconds(claims, "exp") <= now - CLOCK_LEEWAY_SECONDS
    ):
        raise TokenRefused("exp")
