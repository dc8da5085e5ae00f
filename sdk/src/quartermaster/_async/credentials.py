"""Who calls: the Authorization of each request, and on whose behalf.

A client secret goes to the token endpoint only. Its token is refreshed before it expires, once for all threads or
tasks, and once more after a 401. The clock of the machine plays no part: lives are counted from when they were asked.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from typing import Protocol

import httpx

from quartermaster._async.sending import AsyncSender
from quartermaster._concurrency import AsyncLock
from quartermaster._settings import ApiKey, ClientSecret
from quartermaster._tokens import TOKEN_PATH, UNAUTHORIZED, Origin, Token, read_token
from quartermaster.errors import ConnectionFailed, RateLimited, ServerError


class AsyncTokens(Protocol):
    """Where bearer tokens come from."""

    async def get(self) -> str:
        """Give a token that is valid for a while."""
        ...

    async def renew(self, refused: str) -> str | None:
        """Give another token after one was refused, None if there is none."""
        ...

    def doubt(self, token: str) -> None:
        """Prefer another token for the next request: this one may have been refused."""
        ...


class AsyncFixedToken:
    """An API key."""

    def __init__(self, key: ApiKey) -> None:
        self._key = key

    async def get(self) -> str:
        """Give the key."""
        return self._key.value

    async def renew(self, refused: str) -> str | None:  # noqa: ARG002 (there is only one)
        """Give none: a key that was refused stays refused."""
        return None

    def doubt(self, token: str) -> None:
        """Keep the key, which is the only one."""


class AsyncExchangedTokens:
    """Short-lived tokens in exchange for a client secret."""

    def __init__(self, sender: AsyncSender, secret: ClientSecret) -> None:
        self._sender = sender
        self._secret = secret
        self._lock = AsyncLock()
        self._token: Token | None = None

    async def get(self) -> str:
        """Give a token, a new one when the present one expires soon. Raises what an exchange raises."""
        token = self._token
        if token is not None and token.is_fresh:
            return token.value
        async with self._lock:
            if self._token is token:
                self._token = await self._refresh(token)
            current = self._token
        return current.value if current is not None else await self.get()

    async def renew(self, refused: str) -> str | None:
        """Exchange again, unless somebody else did so since."""
        async with self._lock:
            if self._token is not None and self._token.value == refused:
                self._token = None
        return await self.get()

    def doubt(self, token: str) -> None:
        """Exchange again before the next request; while that fails the present token goes on."""
        current = self._token
        if current is not None and current.value == token:
            self._token = current.due_now()

    async def _refresh(self, token: Token | None) -> Token:
        try:
            return await self._exchange()
        except (ConnectionFailed, RateLimited, ServerError):
            # There was time left on purpose, for just this.
            present = token.due_later() if token is not None else None
            if present is None:
                raise
            return present

    async def _exchange(self) -> Token:
        asked_at = time.monotonic()
        response = await self._sender.send(self._make_request, None, is_repeatable=True)
        return read_token(response.json(), asked_at)

    def _make_request(self) -> httpx.Request:
        form = {
            "grant_type": "client_credentials",
            "client_id": self._secret.client_id,
            "client_secret": self._secret.client_secret,
        }
        return self._sender.http.build_request("POST", self._sender.url(TOKEN_PATH), data=form)


class AsyncCallerAuth(httpx.Auth):
    """Writes the caller's token and the context's attribution on requests to the service, and on no others."""

    def __init__(self, tokens: AsyncTokens, base_url: httpx.URL) -> None:
        self._tokens = tokens
        self._origin = Origin(base_url)

    async def async_auth_flow(self, request: httpx.Request) -> AsyncGenerator[httpx.Request, httpx.Response]:
        """Authorize a request; after a 401 send it once more with a new token."""
        if not self._origin.attribute(request):
            yield request
            return
        token = await self._tokens.get()
        request.headers["Authorization"] = f"Bearer {token}"
        try:
            response = yield request
        except GeneratorExit:
            # A 401 while the content was still being sent is lost with the connection, and looks like any cut.
            if int(request.headers.get("Content-Length", 0)):
                self._tokens.doubt(token)
            raise
        if response.status_code != UNAUTHORIZED:
            return
        other = await self._tokens.renew(token)
        if other is not None:
            request.headers["Authorization"] = f"Bearer {other}"
            yield request
