"""Add the caller's bearer token and the context's attribution to requests.

The client sends a client secret only to the token endpoint, which returns an access token. One thread or task refreshes
the access token for all requests before the token expires. After a 401 the client refreshes the token once more. A
monotonic clock measures the token's lifetime, so a wrong system time has no effect.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Protocol

import httpx

from quartermaster._sync.sender import Sender
from quartermaster._concurrency import Lock
from quartermaster._settings import ApiKey, ClientSecret
from quartermaster._tokens import TOKEN_PATH, UNAUTHORIZED, Origin, Token, read_token
from quartermaster.errors import ConnectionFailed, RateLimited, ServerError


class Tokens(Protocol):
    """A source of bearer tokens."""

    def get(self) -> str:
        """Return a valid token."""
        ...

    def renew(self, refused: str) -> str | None:
        """Return a token to use instead of the `refused` token, or None if there is no other token."""
        ...

    def mark_suspect(self, token: str) -> None:
        """Make the next request refresh the token first, because the service may have rejected the token."""
        ...


class FixedToken:
    """A token source that always returns the same API key."""

    def __init__(self, key: ApiKey) -> None:
        self._key = key

    def get(self) -> str:
        """Return the API key."""
        return self._key.value

    def renew(self, refused: str) -> str | None:  # noqa: ARG002 (there is only one)
        """Return None: there is no other key."""
        return None

    def mark_suspect(self, token: str) -> None:
        """Do nothing: there is no other key."""


class ExchangedTokens:
    """A token source that exchanges a client secret for short-lived access tokens."""

    def __init__(self, sender: Sender, secret: ClientSecret) -> None:
        self._sender = sender
        self._secret = secret
        self._lock = Lock()
        self._token: Token | None = None

    def get(self) -> str:
        """Return the cached token, or a new token if the cached token expires soon.

        Raises ApiError or ConnectionFailed if there is no valid token and the exchange fails.
        """
        token = self._token
        # Check before acquiring the lock: requests that find a fresh token must not wait for one another.
        if token is not None and token.is_fresh:
            return token.value
        with self._lock:
            # Refresh only the token read above: another task may have refreshed it while this task waited for the lock.
            if self._token is token:
                self._token = self._refresh(token)
            current = self._token
        # renew() may have discarded the token since the refresh, so get a token again in that case.
        return current.value if current is not None else self.get()

    def renew(self, refused: str) -> str | None:
        """Return a new token, or the current token if another task has replaced the rejected token already."""
        with self._lock:
            # Compare the value: after a revocation many requests get a 401, and only the first must discard the
            # token.
            if self._token is not None and self._token.value == refused:
                self._token = None
        return self.get()

    def mark_suspect(self, token: str) -> None:
        """Make the token due for a refresh. If the refresh fails, the token stays in use until the token expires."""
        current = self._token
        if current is not None and current.value == token:
            self._token = current.marked_stale()

    def _refresh(self, token: Token | None) -> Token:
        try:
            return self._exchange()
        except (ConnectionFailed, RateLimited, ServerError):
            # The refresh failed, but it began before the token expires: use the present token and refresh later.
            present = token.with_refresh_postponed() if token is not None else None
            if present is None:
                raise
            return present

    def _exchange(self) -> Token:
        # Read the clock before the request: the lifetime begins when the service issues the token, not at the response.
        requested_at = time.monotonic()
        # Send no Authorization header: the form contains the secret. The request is repeatable, because a second
        # exchange has no effect except to issue a second token.
        response = self._sender.send(self._make_request, None, is_repeatable=True)
        return read_token(response.json(), requested_at)

    def _make_request(self) -> httpx.Request:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._secret.client_id,
            "client_secret": self._secret.client_secret,
        }
        return self._sender.http.build_request("POST", self._sender.url(TOKEN_PATH), data=form)


class CallerAuth(httpx.Auth):
    """Adds the caller's token and the context's attribution to requests to the service, and to no other requests."""

    def __init__(self, tokens: Tokens, base_url: httpx.URL) -> None:
        self._tokens = tokens
        self._origin = Origin(base_url)

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Add the token and the attribution to a request. After a 401, send the request again with a new token."""
        # A request to another origin must not carry the credential, so send that request unchanged.
        if not self._origin.set_attribution(request):
            yield request
            return
        token = self._tokens.get()
        request.headers["Authorization"] = f"Bearer {token}"
        try:
            response = yield request
        except GeneratorExit:
            # A 401 that arrives while the client sends content can be lost with the connection: refresh the token.
            if int(request.headers.get("Content-Length", 0)):
                self._tokens.mark_suspect(token)
            raise
        if response.status_code != UNAUTHORIZED:
            return
        # Renew only once: if the service rejects the new token too, it would also reject a third token.
        other = self._tokens.renew(token)
        if other is not None:
            request.headers["Authorization"] = f"Bearer {other}"
            yield request
