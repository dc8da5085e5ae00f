"""ASGI middleware that authenticates the service's requests, and sets the context from a request's attribution.

The middleware works with any ASGI application that serves A2A. Except for the public card, every request needs the
service's request token. While a request with a verified `Service-Usage-Attribution` runs,
`quartermaster.context.current()` returns the attribution's context.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from quartermaster import context
from quartermaster.agents.connection import Connection, ServiceUnavailable
from quartermaster.context import ATTRIBUTION_HEADER, RequestContext
from quartermaster.key_sets import KeysUnavailable
from quartermaster.verification import VerificationFailed, Verifier

CARD_PATH = "/.well-known/agent-card.json"
RETRY_AFTER_SECONDS = 2
_STATUS_NAMES = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 503: "UNAVAILABLE"}
_log = logging.getLogger("quartermaster.agents")


class _Refusal(Exception):
    def __init__(self, status: int, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers


class ServiceAuthentication:
    """Authenticates every request except those for the card.

    `is_anonymous` accepts requests without a token and without an attribution. Use it for development only.
    """

    def __init__(
        self, app: ASGIApp, *, connection: Connection | None = None, is_anonymous: bool = False
    ) -> None:
        self._app = app
        self._connection = connection or Connection()
        self._is_anonymous = is_anonymous

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http" or _is_public(scope):
            await self._app(scope, receive, send)
            return
        try:
            verified = await self._authenticate(Headers(scope=scope))
        except _Refusal as refusal:
            await _to_response(refusal)(scope, receive, send)
            return
        with context.use(verified):
            await self._app(scope, receive, send)

    async def _authenticate(self, headers: Headers) -> RequestContext | None:
        attribution = _read_attribution(headers)
        token = _read_token(headers)
        # Skip verification only if the request has no credential: a credential is verified in development too.
        if token is None and attribution is None and self._is_anonymous:
            return None
        if token is None:
            raise _unauthenticated("The request has no bearer token; send the service's request token.")
        try:
            return await self._verify(token, attribution)
        except VerificationFailed as failure:
            raise _unauthenticated(str(failure)) from failure
        except (KeysUnavailable, ServiceUnavailable) as failure:
            _log.warning("Requests cannot be verified: %s", failure.__cause__ or failure)
            # Do not return 401: the token may be valid, so the client should repeat the same request later.
            retry = {"Retry-After": str(RETRY_AFTER_SECONDS)}
            raise _Refusal(503, "The agent cannot verify requests at the moment; retry.", retry) from failure

    async def _verify(self, token: str, attribution: str | None) -> RequestContext | None:
        verifier = await self._connection.verifier()
        # Verify on the event loop only if the keys are cached. Otherwise a thread waits for the keys.
        if verifier.is_ready(token, attribution or ""):
            return _verify(verifier, token, attribution)
        return await asyncio.to_thread(_verify, verifier, token, attribution)


def _verify(verifier: Verifier, token: str, attribution: str | None) -> RequestContext | None:
    verifier.verify_request_token(token)
    return None if attribution is None else verifier.verify_attribution(attribution)


def _read_attribution(headers: Headers) -> str | None:
    # Read all values of the header: a mapping would return only the first and hide a value that a client added.
    values = headers.getlist(ATTRIBUTION_HEADER)
    if len(values) > 1 or "," in "".join(values):
        raise _Refusal(400, f"The request has more than one {ATTRIBUTION_HEADER}.")
    if values and not values[0].strip():
        raise _Refusal(400, f"The request has an empty {ATTRIBUTION_HEADER}.")
    return values[0].strip() if values else None


def _read_token(headers: Headers) -> str | None:
    values = headers.getlist("Authorization")
    if not values:
        return None
    scheme, _, token = values[0].partition(" ")
    if len(values) > 1 or scheme.lower() != "bearer" or not token.strip():
        raise _unauthenticated("The request must have exactly one Authorization header with a bearer token.")
    return token.strip()


def _unauthenticated(message: str) -> _Refusal:
    return _Refusal(401, message, {"WWW-Authenticate": "Bearer"})


def _is_public(scope: Scope) -> bool:
    path = str(scope["path"]).removeprefix(str(scope.get("root_path", "")))
    return path == CARD_PATH and scope["method"] in {"GET", "HEAD"}


def _to_response(refusal: _Refusal) -> JSONResponse:
    error = {
        "code": refusal.status,
        "status": _STATUS_NAMES[refusal.status],
        "message": refusal.message,
    }
    return JSONResponse({"error": error}, refusal.status, refusal.headers)
