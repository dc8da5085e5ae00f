"""The client: a connection pool, a credential, and the groups of operations."""

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
        """Return OpenAI's client for this service, with the credential and context of this client.

        Needs the extra `openai`. The client is created once, and closed together with this one.
        """
        if self._openai is None:
            # Imported here: the import takes half a second.
            import openai

            self._openai = openai.OpenAI(
                base_url=f"{self.base_url}/v1",
                # OpenAI's client requires a key. `auth` of the HTTP client replaces the header that it makes of it.
                api_key="replaced by the client's own authorization",
                http_client=httpx.Client(  # type: ignore[arg-type] # httpx serves
                    auth=self._auth, timeout=MODEL_TIMEOUT, verify=trusted_authorities()
                ),
            )
        return self._openai

    def close(self) -> None:
        """Close all connections."""
        self._http.close()
        # It has a connection pool of its own; if it was never asked for, openai is not imported either.
        if self._openai is not None:
            self._openai.close()

    def __enter__(self) -> Client:
        """Return the client, which the end of the block closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        self.close()

    def __repr__(self) -> str:
        """Return a description without the credential."""
        return f"{type(self).__name__}(base_url={self.base_url!r})"
