"""The client: a connection pool, a credential, and the groups of operations."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import httpx

from quartermaster._async.credentials import (
    AsyncCallerAuth,
    AsyncExchangedTokens,
    AsyncFixedToken,
    AsyncTokens,
)
from quartermaster._async.files import AsyncFiles
from quartermaster._async.raw import AsyncRaw
from quartermaster._async.sender import AsyncSender
from quartermaster._async.usage import AsyncUsage
from quartermaster._authorities import trusted_authorities
from quartermaster._settings import DEFAULT_MAX_RETRIES, MODEL_TIMEOUT, ApiKey, read_settings

if TYPE_CHECKING:
    import openai


class AsyncClient:
    """A client of the service, with an API key or with a deployment's client id and secret.

    Missing arguments come from SERVICE_BASE_URL, and from SERVICE_CLIENT_ID with SERVICE_CLIENT_SECRET, else from
    SERVICE_API_KEY. `timeout` is in seconds (default: 60, and 10 to connect). A failed request is retried up to
    `max_retries` times if that is safe. Raises ConfigurationError if the address or the credential is missing.
    """

    def __init__(
        self,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        timeout: float | httpx.Timeout | None = None,
        max_retries: int = DEFAULT_MAX_RETRIES,
    ) -> None:
        settings = read_settings(
            base_url=base_url,
            api_key=api_key,
            client_id=client_id,
            client_secret=client_secret,
            timeout=timeout,
            max_retries=max_retries,
        )
        self._settings = settings
        self._http = httpx.AsyncClient(timeout=settings.timeout, verify=trusted_authorities())
        sender = AsyncSender(self._http, settings)
        tokens: AsyncTokens
        if isinstance(settings.credential, ApiKey):
            tokens = AsyncFixedToken(settings.credential)
        else:
            tokens = AsyncExchangedTokens(sender, settings.credential)
        self._auth = AsyncCallerAuth(tokens, settings.base_url)
        self._openai: openai.AsyncOpenAI | None = None
        self.files = AsyncFiles(sender, self._auth)
        self.usage = AsyncUsage(sender, self._auth)
        self.raw = AsyncRaw(sender, self._auth)

    @property
    def base_url(self) -> str:
        """The service's address."""
        return str(self._settings.base_url)

    def openai(self) -> openai.AsyncOpenAI:
        """Return OpenAI's client for this service, with the credential and context of this client.

        Needs the extra `openai`. The client is created once, and closed together with this one.
        """
        if self._openai is None:
            # Imported here: the import takes half a second.
            import openai

            self._openai = openai.AsyncOpenAI(
                base_url=f"{self.base_url}/v1",
                # OpenAI's client requires a key. `auth` of the HTTP client replaces the header that it makes of it.
                api_key="replaced by the client's own authorization",
                http_client=httpx.AsyncClient(  # type: ignore[arg-type] # httpx serves
                    auth=self._auth, timeout=MODEL_TIMEOUT, verify=trusted_authorities()
                ),
            )
        return self._openai

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()
        # It has a connection pool of its own; if it was never asked for, openai is not imported either.
        if self._openai is not None:
            await self._openai.close()

    async def __aenter__(self) -> AsyncClient:
        """Return the client, which the end of the block closes."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self.aclose()

    def __repr__(self) -> str:
        """Return a description without the credential."""
        return f"{type(self).__name__}(base_url={self.base_url!r})"
