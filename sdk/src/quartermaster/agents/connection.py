"""An agent's connection to the service: its clients, and the verifier for its own deployment."""

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
    """The service does not return the agent's access token at the moment; retry later."""


class Connection:
    """Clients with the deployment's credentials, created at their first use and closed with the agent's server."""

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
        """The address and the credential. Raises ConfigurationError if one is missing."""
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
        """Whether there are an address and a credential."""
        try:
            return bool(self.settings)
        except ConfigurationError:
            return False

    @cached_property
    def client(self) -> Client:
        """The client for functions that run in threads."""
        return Client(base_url=self._base_url, client_id=self._client_id, client_secret=self._client_secret)

    @cached_property
    def async_client(self) -> AsyncClient:
        """The client for coroutines."""
        return AsyncClient(
            base_url=self._base_url, client_id=self._client_id, client_secret=self._client_secret
        )

    @property
    def base_url(self) -> str:
        """The service's address, empty if it is not configured."""
        return str(self.settings.base_url) if self.is_configured else ""

    @property
    def issuer(self) -> str:
        """The service's public address, with which its links and extension URIs begin."""
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
        """Return the verifier of requests to this deployment, which is created once.

        Raises ServiceUnavailable if the service does not return an access token.
        """
        # The deployment's id is in its access token. The lock makes concurrent requests exchange credentials once.
        async with self._verifier_lock:
            if self._verifier is None:
                self._verifier = Verifier(
                    self.base_url, read_deployment(await self._access_token()), issuer=self._issuer
                )
        return self._verifier

    async def _access_token(self) -> str:
        if time.monotonic() < self._next_exchange_at:
            # Fail fast after a failure: each waiting request would hold the lock for the whole timeout.
            raise ServiceUnavailable("The service did not respond to the last attempt; retrying shortly.")
        # No retries: other requests wait for the lock, and the service retries its own request.
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
        """Close the clients that were created."""
        # To read a cached property would create the client that is to be closed.
        if "async_client" in self.__dict__:
            await self.async_client.aclose()
        if "client" in self.__dict__:
            self.client.close()
