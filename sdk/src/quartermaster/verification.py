"""Verify the tokens that the service signs: the request token for an agent, and `Service-Usage-Attribution`.

A token is rejected before its signature is checked if its header differs from the header that the service writes. So
the algorithm `none`, other algorithms, `jwk`, `jku`, `crit` and tokens of another type are rejected (RFC 8725, 3.11).
Keys come from the service's key set. This module needs the extra `agents` (joserfc).
"""

from __future__ import annotations

import json
import re
import time
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any
from uuid import UUID

from joserfc import jws
from joserfc.errors import JoseError

from quartermaster.context import ReportedCaller, RequestContext
from quartermaster.errors import QuartermasterError
from quartermaster.key_sets import KeySet

ALGORITHM = "ES256"
REQUEST_TOKEN_TYPE = "agent-request+jwt"  # noqa: S105 (a name)
ATTRIBUTION_TYPE = "usage-attribution+jwt"
SENDER = "quartermaster"
# Accept tokens shortly before and after their validity: the clocks of the service and the agent may differ.
LEEWAY_SECONDS = 60
# Check the length before parsing, because anonymous clients can send tokens of any length.
MAX_TOKEN_CHARACTERS = 4096
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+", re.ASCII)
_Signature = jws.CompactSignature


class VerificationFailed(QuartermasterError):
    """The token is not signed by the service, is for another deployment, or has expired."""


@dataclass(frozen=True)
class Deployment:
    """The deployment that receives requests, and its organization."""

    id: UUID
    organization_id: UUID


class Verifier:
    """Verifies tokens that the service signs for one deployment. The class is thread-safe.

    `issuer` is the service's public address, which tokens contain. Set `issuer` if `base_url` is another address.
    """

    def __init__(
        self,
        base_url: str,
        deployment: Deployment,
        *,
        issuer: str | None = None,
        keys: KeySet | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        base = base_url.rstrip("/")
        self._issuer = issuer or base
        self._deployment = deployment
        self._keys = keys or KeySet(f"{base}/.well-known/jwks.json")
        self._now = now

    def is_ready(self, *values: str) -> bool:
        """Return whether these tokens can be verified without a blocking request for the service's keys."""
        signatures = (_find_signature(value) for value in values)
        return all(found is None or self._keys.is_ready(_kid(found)) for found in signatures)

    def verify_request_token(self, value: str) -> None:
        """Check a request token. Raises VerificationFailed or KeysUnavailable."""
        claims = self._verify(value, REQUEST_TOKEN_TYPE, audience=str(self._deployment.id))
        # Require the service as the subject: a request token names no identity.
        if claims.get("sub") != SENDER:
            raise VerificationFailed("The request token is not from the service.")

    def verify_attribution(self, value: str) -> RequestContext:
        """Verify an attribution and return the context in it. Raises VerificationFailed or KeysUnavailable."""
        claims = self._verify(value, ATTRIBUTION_TYPE, audience=f"{self._issuer}/usage-attribution")
        if claims.get("scope") != "callback" or claims.get("deployment_id") != str(self._deployment.id):
            raise VerificationFailed("The attribution is for another deployment.")
        return _read_context(claims, value, self._deployment)

    def _verify(self, value: str, typ: str, *, audience: str) -> Mapping[str, Any]:
        signature = _find_signature(value)
        if signature is None or signature.headers() != {"alg": ALGORITHM, "typ": typ, "kid": _kid(signature)}:
            raise VerificationFailed("The token has an unexpected format or type.")
        key = self._keys.find(_kid(signature))
        try:
            if key is None or not jws.validate_compact(signature, key, [ALGORITHM]):
                raise VerificationFailed("The service did not sign the token.")
            claims = json.loads(signature.payload)
        except (JoseError, ValueError, RecursionError) as error:
            raise VerificationFailed("The token cannot be parsed.") from error
        if not isinstance(claims, dict):
            raise VerificationFailed("The token has no claims.")
        self._require_issued_for(claims, audience)
        return claims

    def _require_issued_for(self, claims: Mapping[str, Any], audience: str) -> None:
        if claims.get("iss") != self._issuer or claims.get("aud") != audience:
            raise VerificationFailed("The token has another issuer or audience.")
        now = self._now()
        if _seconds(claims, "iat") > now + LEEWAY_SECONDS:
            raise VerificationFailed("The token was issued in the future.")
        if _seconds(claims, "exp") <= now - LEEWAY_SECONDS:
            raise VerificationFailed("The token has expired.")


def read_deployment(access_token: str) -> Deployment:
    """Return the deployment that an access token of this agent names. Raises VerificationFailed if none is named.

    The signature is not checked, because the agent received the token from the service's token endpoint over TLS.
    """
    parts = access_token.split(".")
    try:
        # Add padding, which JWTs omit. Python ignores excess padding.
        claims = json.loads(urlsafe_b64decode(parts[1] + "=="))
    except (ValueError, IndexError) as error:
        raise VerificationFailed("The access token is not a deployment's.") from error
    if not isinstance(claims, dict):
        raise VerificationFailed("The access token is not a deployment's.")
    return Deployment(
        id=_identifier(claims, "deployment_id"), organization_id=_identifier(claims, "organization_id")
    )


def _find_signature(value: str) -> _Signature | None:
    if len(value) > MAX_TOKEN_CHARACTERS or _COMPACT.fullmatch(value) is None:
        return None
    try:
        signature = jws.extract_compact(value.encode())
    except (JoseError, ValueError, RecursionError):
        return None
    return signature if isinstance(signature.headers().get("kid"), str) else None


def _kid(signature: _Signature) -> str:
    return str(signature.headers()["kid"])


def _read_context(claims: Mapping[str, Any], value: str, deployment: Deployment) -> RequestContext:
    return RequestContext(
        agent_principal=_identifier(claims, "sub"),
        execution_principal=_identifier(_object(claims, "act"), "sub"),
        payer=_identifier(claims, "payer"),
        organization=deployment.organization_id,
        deployment_id=deployment.id,
        distribution_id=_identifier(claims, "distribution_id") if "distribution_id" in claims else None,
        transaction_id=_text(claims, "txn"),
        reported_caller=_read_caller(_object(claims, "rctx")),
        attribution=value,
        expires_at=datetime.fromtimestamp(_seconds(claims, "exp"), tz=timezone.utc),
    )


def _read_caller(request: Mapping[str, Any]) -> ReportedCaller | None:
    reported = _object(request, "reported_caller")
    if not reported:
        return None
    display = reported.get("display")
    return ReportedCaller(id=_text(reported, "id"), display=display if isinstance(display, str) else None)


def _object(claims: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = claims.get(name)
    return value if isinstance(value, dict) else {}


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not value:
        raise VerificationFailed(f"The token has no {name}.")
    return value


def _identifier(claims: Mapping[str, Any], name: str) -> UUID:
    try:
        return UUID(_text(claims, name))
    except ValueError as error:
        raise VerificationFailed(f"The token's {name} is not an id.") from error


def _seconds(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    # Compare the type: isinstance() would accept `true` as a time, because bool is a subclass of int.
    if type(value) is not int:
        raise VerificationFailed(f"The token has no {name}.")
    return value
