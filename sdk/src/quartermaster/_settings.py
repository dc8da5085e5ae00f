"""Where the service is and who calls it: from arguments, else from the environment."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import httpx

from quartermaster.errors import ConfigurationError

BASE_URL, API_KEY = "SERVICE_BASE_URL", "SERVICE_API_KEY"
CLIENT_ID, CLIENT_SECRET = "SERVICE_CLIENT_ID", "SERVICE_CLIENT_SECRET"

# A write is answered after at most 30 seconds of waiting for its placement, as is the retry of one still running.
DEFAULT_TIMEOUT = httpx.Timeout(60.0, connect=10.0)
DEFAULT_MAX_RETRIES = 4
# A model may think for minutes before its first byte.
MODEL_TIMEOUT = httpx.Timeout(600.0, connect=10.0)


@dataclass(frozen=True)
class ApiKey:
    """A personal API key, sent as it is."""

    value: str = field(repr=False)


@dataclass(frozen=True)
class ClientSecret:
    """A deployment's credentials, which are exchanged for short-lived tokens."""

    client_id: str
    client_secret: str = field(repr=False)


@dataclass(frozen=True)
class Settings:
    """How a client is set up."""

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
    """Complete the arguments from the environment; raise ConfigurationError when something is missing."""
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
        if client_id and client_secret:  # a deployment's runtime, whatever else its environment holds
            api_key = None
    if api_key and not client_id and not client_secret:
        return ApiKey(api_key)
    if client_id and client_secret and not api_key:
        return ClientSecret(client_id, client_secret)
    raise ConfigurationError(
        f"Give either an API key ({API_KEY}) or a client id and its secret ({CLIENT_ID}, {CLIENT_SECRET})."
    )


def _read_base_url(text: str) -> httpx.URL:
    if not text:
        raise ConfigurationError(f"Give the service's address (base_url or {BASE_URL}).")
    try:
        url = httpx.URL(text.rstrip("/"))
    except httpx.InvalidURL:
        url = httpx.URL()
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment or url.userinfo:
        # Not shown: it may hold a credential.
        raise ConfigurationError("The service's address must be http(s)://host, with nothing but a path.")
    return url


def _read_variable(name: str) -> str:
    # Variables that were read from files often end with a line break.
    return os.environ.get(name, "").strip()
