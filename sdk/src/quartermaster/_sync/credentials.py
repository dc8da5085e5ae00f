"""Authorize requests: the bearer token of the caller, and the attribution of the context.

A client secret is sent to the token endpoint only. Its token is refreshed before it expires, by one thread or task for
all, and once more after a 401. Lifetimes are measured with a monotonic clock, so a wrong system time does not matter.
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
        """Return another token after the service rejected one, or None if there is no other."""
        ...

    def mark_suspect(self, token: str) -> None:
        """Refresh the token before the next request, because the service may have rejected it."""
        ...


class FixedToken:
    """An API key as the only token."""

    def __init__(self, key: ApiKey) -> None:
        self._key = key

    def get(self) -> str:
        """Return the key."""
        return self._key.value

    def renew(self, refused: str) -> str | None:  # noqa: ARG002 (there is only one)
        """Return None: there is no other key."""
        return None

    def mark_suspect(self, token: str) -> None:
        """Do nothing: there is no other key."""


class ExchangedTokens:
    """Short-lived access tokens, obtained with a client secret."""

    def __init__(self, sender: Sender, secret: ClientSecret) -> None:
        self._sender = sender
        self._secret = secret
        self._lock = Lock()
        self._token: Token | None = None

    def get(self) -> str:
        """Return the cached token, or a new one if it expires soon.

        Raises ApiError or ConnectionFailed if there is no valid token and the exchange fails.
        """
        token = self._token
        # Without the lock: requests with a fresh token must not wait for one another.
        if token is not None and token.is_fresh:
            return token.value
        with self._lock:
            # Another task may have refreshed the token while this one waited for the lock.
            if self._token is token:
                self._token = self._refresh(token)
            current = self._token
        # renew() may have discarded the token between the refresh and this line.
        return current.value if current is not None else self.get()

    def renew(self, refused: str) -> str | None:
        """Return a new token, or the current one if another task has replaced the rejected one already."""
        with self._lock:
            # Compare the value: after a revocation many requests get a 401, and only the first must discard the
            # token.
            if self._token is not None and self._token.value == refused:
                self._token = None
        return self.get()

    def mark_suspect(self, token: str) -> None:
        """Make the token due for a refresh. If that fails, the token stays in use until it expires."""
        current = self._token
        if current is not None and current.value == token:
            self._token = current.marked_stale()

    def _refresh(self, token: Token | None) -> Token:
        try:
            return self._exchange()
        except (ConnectionFailed, RateLimited, ServerError):
            # Refreshes begin early, so that the present token outlasts a short outage of the service.
            present = token.with_refresh_postponed() if token is not None else None
            if present is None:
                raise
            return present

    def _exchange(self) -> Token:
        # Before the request: the time that the response takes must not lengthen the lifetime.
        requested_at = time.monotonic()
        # No authorization: the secret is in the form. Repeatable, because another exchange only issues another
        # token.
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
    """Adds the caller's token and the context's attribution to requests to the service, and only to those."""

    def __init__(self, tokens: Tokens, base_url: httpx.URL) -> None:
        self._tokens = tokens
        self._origin = Origin(base_url)

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Authorize a request, and send it again with a new token after a 401."""
        # A request to another origin is sent as it is, without a credential.
        if not self._origin.set_attribution(request):
            yield request
            return
        token = self._tokens.get()
        request.headers["Authorization"] = f"Bearer {token}"
        try:
            response = yield request
        except GeneratorExit:
            # A 401 that arrives while content is still being sent can be lost with the connection. Suspect the token.
            if int(request.headers.get("Content-Length", 0)):
                self._tokens.mark_suspect(token)
            raise
        if response.status_code != UNAUTHORIZED:
            return
        # Once only: if the new token is rejected too, a third would be.
        other = self._tokens.renew(token)
        if other is not None:
            request.headers["Authorization"] = f"Bearer {other}"
            yield request
