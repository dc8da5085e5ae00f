"""Authorize requests: the bearer token of the caller, and the attribution of the context.

A client secret is sent to the token endpoint only. Its token is refreshed before it expires, by one thread or task for
all, and once more after a 401. Lifetimes are measured with a monotonic clock, so a wrong system time does not matter.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Protocol

import httpx

from quartermaster._async.sender import AsyncSender
from quartermaster._concurrency import AsyncLock
from quartermaster._settings import ApiKey, ClientSecret
from quartermaster._tokens import TOKEN_PATH, UNAUTHORIZED, Origin, Token, read_token
from quartermaster.errors import ConnectionFailed, RateLimited, ServerError


class AsyncTokens(Protocol):
    """A source of bearer tokens."""

    async def get(self) -> str:
        """Return a valid token."""
        ...

    async def renew(self, refused: str) -> str | None:
        """Return another token after the service rejected one, or None if there is no other."""
        ...

    def mark_suspect(self, token: str) -> None:
        """Refresh the token before the next request, because the service may have rejected it."""
        ...


class AsyncFixedToken:
    """An API key as the only token."""

    def __init__(self, key: ApiKey) -> None:
        self._key = key

    async def get(self) -> str:
        """Return the key."""
        return self._key.value

    async def renew(self, refused: str) -> str | None:  # noqa: ARG002 (there is only one)
        """Return None: there is no other key."""
        return None

    def mark_suspect(self, token: str) -> None:
        """Do nothing: there is no other key."""


class AsyncExchangedTokens:
    """Short-lived access tokens, obtained with a client secret."""

    def __init__(self, sender: AsyncSender, secret: ClientSecret) -> None:
        self._sender = sender
        self._secret = secret
        self._lock = AsyncLock()
        self._token: Token | None = None

    async def get(self) -> str:
        """Return the cached token, or a new one if it expires soon.

        Raises ApiError or ConnectionFailed if there is no valid token and the exchange fails.
        """
        token = self._token
        # Without the lock: requests with a fresh token must not wait for one another.
        if token is not None and token.is_fresh:
            return token.value
        async with self._lock:
            # Another task may have refreshed the token while this one waited for the lock.
            if self._token is token:
                self._token = await self._refresh(token)
            current = self._token
        # renew() may have discarded the token between the refresh and this line.
        return current.value if current is not None else await self.get()

    async def renew(self, refused: str) -> str | None:
        """Return a new token, or the current one if another task has replaced the rejected one already."""
        async with self._lock:
            # Compare the value: after a revocation many requests get a 401, and only the first must discard the
            # token.
            if self._token is not None and self._token.value == refused:
                self._token = None
        return await self.get()

    def mark_suspect(self, token: str) -> None:
        """Make the token due for a refresh. If that fails, the token stays in use until it expires."""
        current = self._token
        if current is not None and current.value == token:
            self._token = current.marked_stale()

    async def _refresh(self, token: Token | None) -> Token:
        try:
            return await self._exchange()
        except (ConnectionFailed, RateLimited, ServerError):
            # Refreshes begin early, so that the present token outlasts a short outage of the service.
            present = token.with_refresh_postponed() if token is not None else None
            if present is None:
                raise
            return present

    async def _exchange(self) -> Token:
        # Before the request: the time that the response takes must not lengthen the lifetime.
        requested_at = time.monotonic()
        # No authorization: the secret is in the form. Repeatable, because another exchange only issues another
        # token.
        response = await self._sender.send(self._make_request, None, is_repeatable=True)
        return read_token(response.json(), requested_at)

    def _make_request(self) -> httpx.Request:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._secret.client_id,
            "client_secret": self._secret.client_secret,
        }
        return self._sender.http.build_request("POST", self._sender.url(TOKEN_PATH), data=form)


class AsyncCallerAuth(httpx.Auth):
    """Adds the caller's token and the context's attribution to requests to the service, and only to those."""

    def __init__(self, tokens: AsyncTokens, base_url: httpx.URL) -> None:
        self._tokens = tokens
        self._origin = Origin(base_url)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Authorize a request, and send it again with a new token after a 401."""
        # A request to another origin is sent as it is, without a credential.
        if not self._origin.set_attribution(request):
            yield request
            return
        token = await self._tokens.get()
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
        other = await self._tokens.renew(token)
        if other is not None:
            request.headers["Authorization"] = f"Bearer {other}"
            yield request
