"""An agent's own connection to the service: its clients, and who the service says it is."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property

import anyio
import httpx

from quartermaster import AsyncClient, Client
from quartermaster._async.credentials import AsyncExchangedTokens
from quartermaster._async.sending import AsyncSender
from quartermaster._authorities import trusted_authorities
from quartermaster._settings import DEFAULT_MAX_RETRIES, ClientSecret, Settings, read_settings
from quartermaster.errors import ApiError, ConfigurationError, ConnectionFailed, QuartermasterError
from quartermaster.verification import Verifier, read_deployment

EXCHANGE_TIMEOUT_SECONDS = 5.0
PAUSE_AFTER_FAILURE_SECONDS = 1.0


class ServiceUnavailable(QuartermasterError):
    """The service cannot say at the moment which deployment this is."""


class Connection:
    """Clients with the deployment's credentials, made when they are first used; closed with the agent's server."""

    def __init__(
        self,
        *,
        base_url: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        issuer: str | None = None,
    ) -> None:
        self._base_url = base_url
        self._client_id = client_id
        self._client_secret = client_secret
        self._issuer = issuer
        self._verifier: Verifier | None = None
        self._asking = anyio.Lock()
        self._ask_again_at = time.monotonic()

    @cached_property
    def settings(self) -> Settings:
        """Give address and credential; raises ConfigurationError when they are missing."""
        return read_settings(
            base_url=self._base_url,
            api_key=None,
            client_id=self._client_id,
            client_secret=self._client_secret,
            timeout=None,
            max_retries=DEFAULT_MAX_RETRIES,
        )

    @property
    def is_configured(self) -> bool:
        """Tell whether there are an address and a credential."""
        try:
            return bool(self.settings)
        except ConfigurationError:
            return False

    @cached_property
    def client(self) -> Client:
        """Give the client for functions in threads."""
        return Client(base_url=self._base_url, client_id=self._client_id, client_secret=self._client_secret)

    @cached_property
    def async_client(self) -> AsyncClient:
        """Give the client for coroutines."""
        return AsyncClient(
            base_url=self._base_url, client_id=self._client_id, client_secret=self._client_secret
        )

    @property
    def base_url(self) -> str:
        """Give the service's address, empty where none is known."""
        return str(self.settings.base_url) if self.is_configured else ""

    @property
    def issuer(self) -> str:
        """Give the service's public address, below which its links and names are."""
        return self._issuer or self.base_url

    @property
    def file_artifact_uri(self) -> str:
        """Give the URI of the extension that says of an artifact which file it is."""
        return f"{self.issuer}/extensions/file-artifact/v1"

    def require_deployment(self) -> ClientSecret:
        """Give the deployment's credential; raises ConfigurationError where there is none."""
        credential = self.settings.credential
        if not isinstance(credential, ClientSecret):
            raise ConfigurationError("An agent needs its deployment's client id and secret, not an API key.")
        return credential

    async def verifier(self) -> Verifier:
        """Give what verifies requests to this deployment, whose id is in its own access token.

        Raises ServiceUnavailable; requests that arrive together ask once.
        """
        async with self._asking:
            if self._verifier is None:
                self._verifier = Verifier(
                    self.base_url, read_deployment(await self._access_token()), issuer=self._issuer
                )
        return self._verifier

    async def _access_token(self) -> str:
        if time.monotonic() < self._ask_again_at:
            raise ServiceUnavailable("The service did not answer a moment ago.")
        settings = replace(self.settings, timeout=httpx.Timeout(EXCHANGE_TIMEOUT_SECONDS), max_retries=0)
        async with httpx.AsyncClient(timeout=settings.timeout, verify=trusted_authorities()) as http:
            tokens = AsyncExchangedTokens(AsyncSender(http, settings), self.require_deployment())
            try:
                return await tokens.get()
            except (ApiError, ConnectionFailed) as failure:
                self._ask_again_at = time.monotonic() + PAUSE_AFTER_FAILURE_SECONDS
                raise ServiceUnavailable("The credentials cannot be exchanged.") from failure

    async def aclose(self) -> None:
        """Close the clients that were made."""
        if "async_client" in self.__dict__:
            await self.async_client.aclose()
        if "client" in self.__dict__:
            self.client.close()
