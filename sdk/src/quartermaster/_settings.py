"""Read a client's settings from arguments or environment variables: address, credential, timeout, retries."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import httpx

from quartermaster.errors import ConfigurationError

BASE_URL, API_KEY = "SERVICE_BASE_URL", "SERVICE_API_KEY"
CLIENT_ID, CLIENT_SECRET = "SERVICE_CLIENT_ID", "SERVICE_CLIENT_SECRET"

# Longer than 30 seconds: the service may take that long to respond to a write.
DEFAULT_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
DEFAULT_MAX_RETRIES = 4
# Longer than the default: a model may take minutes to send the first byte of its reply.
MODEL_TIMEOUT = httpx.Timeout(600.0, connect=10.0)


@dataclass(frozen=True)
class ApiKey:
    """A user's API key. The client sends the key itself as the bearer token."""

    value: str = field(repr=False)


@dataclass(frozen=True)
class ClientSecret:
    """A deployment's client id and secret. The client exchanges both for short-lived access tokens."""

    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True)
class Settings:
    """The settings of a client."""

    base_url: httpx.URL
    credential: ApiKey | ClientSecret
    timeout: httpx.Timeout
    max_retries: int


def read_settings(
    *,
    base_url: str | None,
    api_key: str | None,
    client_id: str | None,
    client_secret: str | None,
    timeout: float | httpx.Timeout | None,
    max_retries: int,
) -> Settings:
    """Return the settings. Values of missing arguments come from environment variables.

    Raises ConfigurationError if the address or the credential is missing or ambiguous.
    """
    return Settings(
        base_url=_read_base_url(base_url or _read_variable(BASE_URL)),
        credential=_choose_credential(api_key, client_id, client_secret),
        timeout=DEFAULT_TIMEOUT if timeout is None else httpx.Timeout(timeout),
        max_retries=max_retries,
    )


def _choose_credential(
    api_key: str | None, client_id: str | None, client_secret: str | None
) -> ApiKey | ClientSecret:
    if api_key is None and client_id is None and client_secret is None:
        api_key, client_id, client_secret = map(_read_variable, (API_KEY, CLIENT_ID, CLIENT_SECRET))
        if (
            client_id and client_secret
        ):  # in a deployment's runtime, its own credentials come before any API key
            api_key = None
    if api_key and not client_id and not client_secret:
        return ApiKey(api_key)
    if client_id and client_secret and not api_key:
        return ClientSecret(client_id, client_secret)
    raise ConfigurationError(
        f"Pass either an API key ({API_KEY}) or a client id and secret ({CLIENT_ID}, {CLIENT_SECRET})."
    )


def _read_base_url(text: str) -> httpx.URL:
    if not text:
        raise ConfigurationError(f"The service's address is missing; set base_url or {BASE_URL}.")
    try:
        url = httpx.URL(text.rstrip("/"))
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment or url.userinfo:
        # Do not quote the address in the message: the address may contain a credential.
        raise ConfigurationError(
            "The service's address must be http(s)://host with an optional path, and nothing else."
        )
    return url


def _read_variable(name: str) -> str:
    # Strip the value: if a shell read it from a file, the value may end with a line break.
    return os.environ.get(name, "").strip()
