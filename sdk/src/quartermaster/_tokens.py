"""What a token is good for: when it is refreshed, and which requests it is written on."""

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
    """A short-lived token; its moments are those of `time.monotonic`."""

    value: str = field(repr=False)
    refresh_at: float
    expires_at: float

    @property
    def is_fresh(self) -> bool:
        """Whether it need not be refreshed yet."""
        return time.monotonic() < self.refresh_at

    def due_now(self) -> Token:
        """Give the same, to be refreshed before the next request."""
        return replace(self, refresh_at=0.0)

    def due_later(self) -> Token | None:
        """Give the same, to be refreshed after a pause; None once it has expired."""
        now = time.monotonic()
        return replace(self, refresh_at=now + FAILED_REFRESH_PAUSE_SECONDS) if now < self.expires_at else None


def read_token(answer: Mapping[str, Any], asked_at: float) -> Token:
    """Read the token endpoint's answer; its life is counted from when it was asked."""
    seconds = float(answer["expires_in"])
    early = min(REFRESH_BEFORE_SECONDS, seconds * REFRESH_BEFORE_SHARE)
    return Token(
        value=answer["access_token"], refresh_at=asked_at + seconds - early, expires_at=asked_at + seconds
    )


class Origin:
    """The service's scheme, host and port: no request to another is told who calls."""

    def __init__(self, base_url: httpx.URL) -> None:
        self._origin = _origin(base_url)

    def attribute(self, request: httpx.Request) -> bool:
        """Write the context's attribution on a request, and tell whether it goes to the service."""
        for name in ("Authorization", context.ATTRIBUTION_HEADER, PRINCIPAL_SELECTOR):
            request.headers.pop(name, None)
        if _origin(request.url) != self._origin:
            return False
        current = context.current()
        if current is not None and not _continues_upload(request.url):
            request.headers[context.ATTRIBUTION_HEADER] = current.attribution
        return True


def _continues_upload(url: httpx.URL) -> bool:
    # An upload keeps the owner and payer of its beginning, and may outlast the attribution, which lives for an hour.
    return UPLOADS_PATH in url.path


def _origin(url: httpx.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
