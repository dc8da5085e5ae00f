"""An agent's connection to the service: clients, and the verifier of requests to the agent's deployment."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property

import anyio
import httpx

from quartermaster import AsyncClient, Client
from quartermaster._async.credentials import AsyncExchangedTokens
from quartermaster._async.sender import AsyncSender
from quartermaster._authorities import trusted_authorities
from quartermaster._settings import DEFAULT_MAX_RETRIES, ClientSecret, Settings, read_settings
from quartermaster.errors import ApiError, ConfigurationError, ConnectionFailed, QuartermasterError
from quartermaster.verification import Verifier, read_deployment

EXCHANGE_TIMEOUT_SECONDS = 5.0
PAUSE_AFTER_FAILURE_SECONDS = 1.0


class ServiceUnavailable(QuartermasterError):
    """The service does not issue an access token to the agent at the moment. Retry later."""


class Connection:
    """The agent's clients of the service. A client is created at its first use and closed with the agent's server."""

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
        self._verifier_lock = anyio.Lock()
        self._next_exchange_at = time.monotonic()

    @cached_property
    def settings(self) -> Settings:
        """The service's address and the credential. Raises ConfigurationError if either is missing."""
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
        """Whether the service's address and a credential are configured."""
        try:
            return bool(self.settings)
        except ConfigurationError:
            return False

    @cached_property
    def client(self) -> Client:
        """The client for skills that run in threads."""
        return Client(base_url=self._base_url, client_id=self._client_id, client_secret=self._client_secret)

    @cached_property
    def async_client(self) -> AsyncClient:
        """The client for skills that are `async`."""
        return AsyncClient(
            base_url=self._base_url, client_id=self._client_id, client_secret=self._client_secret
        )

    @property
    def base_url(self) -> str:
        """The service's address, or an empty string if no address is configured."""
        return str(self.settings.base_url) if self.is_configured else ""

    @property
    def issuer(self) -> str:
        """The service's public address. The service's links and extension URIs begin with this address."""
        return self._issuer or self.base_url

    @property
    def file_artifact_uri(self) -> str:
        """The URI of the extension `file-artifact`, which describes the stored file of an artifact."""
        return f"{self.issuer}/extensions/file-artifact/v1"

    def require_deployment(self) -> ClientSecret:
        """Return the deployment's credential. Raises ConfigurationError if there is none."""
        credential = self.settings.credential
        if not isinstance(credential, ClientSecret):
            raise ConfigurationError(
                "An agent needs its deployment's credentials, not an API key: set SERVICE_CLIENT_ID and"
                " SERVICE_CLIENT_SECRET."
            )
        return credential

    async def verifier(self) -> Verifier:
        """Return the verifier of requests to this deployment. The first call creates the verifier.

        Raises ServiceUnavailable if the service does not return an access token.
        """
        # The verifier needs the deployment's id, which is in the access token. The lock makes concurrent requests
        # exchange credentials only once.
        async with self._verifier_lock:
            if self._verifier is None:
                self._verifier = Verifier(
                    self.base_url, read_deployment(await self._access_token()), issuer=self._issuer
                )
        return self._verifier

    async def _access_token(self) -> str:
        if time.monotonic() < self._next_exchange_at:
            # Fail fast after a failed exchange: otherwise each request would hold the lock for the whole timeout.
            raise ServiceUnavailable("The service did not respond to the last attempt; retrying shortly.")
        # Do not retry: other requests wait for the lock meanwhile, and the service repeats its request to the agent.
        settings = replace(self.settings, timeout=httpx.Timeout(EXCHANGE_TIMEOUT_SECONDS), max_retries=0)
        async with httpx.AsyncClient(timeout=settings.timeout, verify=trusted_authorities()) as http:
            tokens = AsyncExchangedTokens(AsyncSender(http, settings), self.require_deployment())
            try:
                return await tokens.get()
            except (ApiError, ConnectionFailed) as failure:
                self._next_exchange_at = time.monotonic() + PAUSE_AFTER_FAILURE_SECONDS
                raise ServiceUnavailable(
                    "The service did not exchange the client secret for a token."
                ) from failure

    async def aclose(self) -> None:
        """Close each client if it was created."""
        # Check `__dict__`: reading the cached property would create a client only to close it.
        if "async_client" in self.__dict__:
            await self.async_client.aclose()
        if "client" in self.__dict__:
            self.client.close()
