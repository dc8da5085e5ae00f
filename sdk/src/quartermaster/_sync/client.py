"""The client of the service: a connection pool, a credential, and groups of operations such as `files`."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

import httpx

from quartermaster._sync.credentials import (
    CallerAuth,
    ExchangedTokens,
    FixedToken,
    Tokens,
)
from quartermaster._sync.files import Files
from quartermaster._sync.raw import Raw
from quartermaster._sync.sender import Sender
from quartermaster._sync.usage import Usage
from quartermaster._authorities import trusted_authorities
from quartermaster._settings import DEFAULT_MAX_RETRIES, MODEL_TIMEOUT, ApiKey, read_settings

if TYPE_CHECKING:
    import openai


class Client:
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
        self._http = httpx.Client(timeout=settings.timeout, verify=trusted_authorities())
        sender = Sender(self._http, settings)
        tokens: Tokens
        if isinstance(settings.credential, ApiKey):
            tokens = FixedToken(settings.credential)
        else:
            tokens = ExchangedTokens(sender, settings.credential)
        self._auth = CallerAuth(tokens, settings.base_url)
        self._openai: openai.OpenAI | None = None
        self.files = Files(sender, self._auth)
        self.usage = Usage(sender, self._auth)
        self.raw = Raw(sender, self._auth)

    @property
    def base_url(self) -> str:
        """The service's address."""
        return str(self._settings.base_url)

    def openai(self) -> openai.OpenAI:
        """Return an OpenAI client that calls this service with the credential and the context of this client.

        The method needs the extra `openai`. Later calls return the same OpenAI client, closed with this client.
        """
        if self._openai is None:
            # Import openai only on the first call: the import takes half a second.
            import openai

            self._openai = openai.OpenAI(
                base_url=f"{self.base_url}/v1",
                # OpenAI's client requires an API key, so pass a placeholder. `auth` replaces the placeholder's header.
                api_key="replaced by the client's own authorization",
                http_client=httpx.Client(  # type: ignore[arg-type] # httpx serves
                    auth=self._auth, timeout=MODEL_TIMEOUT, verify=trusted_authorities()
                ),
            )
        return self._openai

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
        # OpenAI's client has its own connection pool, so close that client too if `openai` created it.
        if self._openai is not None:
            self._openai.close()

    def __enter__(self) -> Client:
        """Return this client. The end of the block closes the client."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    def __repr__(self) -> str:
        """Return a description of the client that does not contain the credential."""
        return f"{type(self).__name__}(base_url={self.base_url!r})"
