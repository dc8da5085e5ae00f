"""Decide when an access token needs a refresh, and which requests carry the token."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from quartermaster import context

TOKEN_PATH = "/oauth/token"  # noqa: S105 (an address)
REFRESH_BEFORE_SECONDS = 60.0
REFRESH_BEFORE_SHARE = 0.2
FAILED_REFRESH_PAUSE_SECONDS = 5.0
UPLOADS_PATH = "/files/uploads/"
PRINCIPAL_SELECTOR = "Service-Principal-Selector"
UNAUTHORIZED = 401


@dataclass(frozen=True)
class Token:
    """A short-lived access token. All times are values of `time.monotonic`."""

    value: str = field(repr=False)
    refresh_at: float
    expires_at: float

    @property
    def is_fresh(self) -> bool:
        """Whether the token is not due for a refresh yet."""
        return time.monotonic() < self.refresh_at

    def marked_stale(self) -> Token:
        """Return a copy of the token that must be refreshed before the next request."""
        return replace(self, refresh_at=0.0)

    def with_refresh_postponed(self) -> Token | None:
        """Return a copy of the token that is refreshed some seconds later, or None if the token has expired."""
        now = time.monotonic()
        return replace(self, refresh_at=now + FAILED_REFRESH_PAUSE_SECONDS) if now < self.expires_at else None


def read_token(response: Mapping[str, Any], requested_at: float) -> Token:
    """Return the token in a token endpoint's response. The token's lifetime begins at `requested_at`."""
    seconds = float(response["expires_in"])
    # Limit the time to a share of the lifetime: with a fixed minute, a token that lives for a minute would always be
    # due for a refresh.
    early = min(REFRESH_BEFORE_SECONDS, seconds * REFRESH_BEFORE_SHARE)
    return Token(
        value=response["access_token"],
        refresh_at=requested_at + seconds - early,
        expires_at=requested_at + seconds,
    )


class Origin:
    """The service's scheme, host and port. Requests to another origin carry no credential and no attribution."""

    def __init__(self, base_url: httpx.URL) -> None:
        self._origin = _origin(base_url)

    def set_attribution(self, request: httpx.Request) -> bool:
        """Set the context's attribution on a request. Return whether the request goes to the service."""
        for name in ("Authorization", context.ATTRIBUTION_HEADER, PRINCIPAL_SELECTOR):
            # Remove these headers first: values from the caller or from a redirect must not be sent.
            request.headers.pop(name, None)
        if _origin(request.url) != self._origin:
            return False
        current = context.current()
        if current is not None and not _continues_upload(request.url):
            request.headers[context.ATTRIBUTION_HEADER] = current.attribution
        return True


def _continues_upload(url: httpx.URL) -> bool:
    # These requests need no attribution: an upload keeps the owner and payer of its first request. An upload may also
    # take longer than the hour for which an attribution is valid.
    return UPLOADS_PATH in url.path


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
