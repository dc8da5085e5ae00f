"""The client of the service: a connection pool, a credential, and groups of operations such as `files`."""

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
    """A client of the service. Its credential is an API key, or a deployment's client id and secret.

    Without arguments, the client reads the address from SERVICE_BASE_URL. It reads the credential from
    SERVICE_CLIENT_ID and SERVICE_CLIENT_SECRET, or from SERVICE_API_KEY if these two variables are unset.
    `timeout` is in seconds (default: 60, and 10 to connect). The client retries a failed request up to `max_retries`
    times if a retry is safe. Raises ConfigurationError if the address or the credential is missing.
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
        """Return an OpenAI client that calls this service with the credential and the context of this client.

        The method needs the extra `openai`. Later calls return the same OpenAI client, closed with this client.
        """
        if self._openai is None:
            # Import openai only on the first call: the import takes half a second.
            import openai

            self._openai = openai.AsyncOpenAI(
                base_url=f"{self.base_url}/v1",
                # OpenAI's client requires an API key, so pass a placeholder. `auth` replaces the placeholder's header.
                api_key="replaced by the client's own authorization",
                http_client=httpx.AsyncClient(  # type: ignore[arg-type] # httpx serves
                    auth=self._auth, timeout=MODEL_TIMEOUT, verify=trusted_authorities()
                ),
            )
        return self._openai

    async def aclose(self) -> None:
        """Close all connections."""
        await self._http.aclose()
        # OpenAI's client has its own connection pool, so close that client too if `openai` created it.
        if self._openai is not None:
            await self._openai.close()

    async def __aenter__(self) -> AsyncClient:
        """Return this client. The end of the block closes the client."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self.aclose()

    def __repr__(self) -> str:
        """Return a description of the client that does not contain the credential."""
        return f"{type(self).__name__}(base_url={self.base_url!r})"
