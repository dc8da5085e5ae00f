"""Check URLs and headers by their text; IP addresses are checked when a connection is opened.

URLs are normalized as `requests` will send them, so that the host compared with the trusted ones is the host asked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urljoin, urlsplit

import requests

from shared.egress.addresses import is_address
from shared.egress.errors import AddressRefused, HeaderRefused, SchemeRefused, UrlRefused
from shared.egress.policy import EgressPolicy

MAX_URL_CHARACTERS = 8192
MAX_HEADERS = 32
MAX_HEADER_CHARACTERS = 8192
DEFAULT_PORTS = {"http": 80, "https": 443}
RESERVED_HEADERS = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "expect",
        "host",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "via",
        "range",
    }
)
"""Headers that the connection itself sets; `proxy-…` and `sec-…` are reserved too."""
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL that may be requested, and the server it names."""

    url: str = field(repr=False)
    scheme: str
    host: str
    port: int

    def shares_origin(self, other: Target) -> bool:
        """Return whether both have the same scheme, host and port."""
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)

    def is_trusted(self, trusted_hosts: Collection[str]) -> bool:
        """Return whether the host is among these; one with a leading dot covers the domain and all below it."""
        return any(_is_or_is_below(self.host, trusted.lower()) for trusted in trusted_hosts)


def parse_url(url: str, policy: EgressPolicy, *, with_secrets: bool) -> Target:
    """Parse a URL to be requested, with credentials or without.

    Raises UrlRefused, SchemeRefused (not http(s), or http with credentials) and AddressRefused (a refused port, or a
    refused IP address as host).
    """
    if len(url) > MAX_URL_CHARACTERS or _FORBIDDEN.search(url):
        raise UrlRefused
    scheme = url.partition(":")[0].lower()
    if scheme not in DEFAULT_PORTS or (scheme == "http" and with_secrets and not policy.allow_http):
        raise SchemeRefused
    return _target(_normalize(url), policy)


def follow(target: Target, location: str, policy: EgressPolicy, *, with_secrets: bool) -> Target:
    """Return the target of a redirect. Raises as `parse_url` does, also for a redirect from https to http."""
    try:
        # http.client decodes headers as Latin-1, but servers send UTF-8.
        url = urljoin(target.url, location.encode("latin-1").decode("utf-8").strip(" "))
    except (ValueError, UnicodeError):
        raise UrlRefused from None
    # A redirect back to http is treated like a URL with credentials: refused unless the policy allows http.
    downgrades = target.scheme == "https" and not url.lower().startswith("https:")
    return parse_url(url, policy, with_secrets=with_secrets or downgrades)


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise HeaderRefused unless another party may choose these headers for our requests."""
    if len(headers) > MAX_HEADERS:
        raise HeaderRefused(f"At most {MAX_HEADERS} headers can be sent.")
    for name, value in headers.items():
        lower = name.lower()
        if (
            not _HEADER_NAME.fullmatch(name)
            or lower in RESERVED_HEADERS
            or lower.startswith(("proxy-", "sec-"))
        ):
            raise HeaderRefused
        if len(value) > MAX_HEADER_CHARACTERS or not _HEADER_VALUE.fullmatch(value):
            raise HeaderRefused


def _normalize(url: str) -> str:
    prepared = requests.PreparedRequest()
    try:
        prepared.prepare_url(url, None)
    except (requests.RequestException, ValueError):
        raise UrlRefused from None
    # The fragment is never sent.
    return (prepared.url or "").partition("#")[0]


def _target(url: str, policy: EgressPolicy) -> Target:
    try:
        parts = urlsplit(url)
        port = parts.port if parts.port is not None else DEFAULT_PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise UrlRefused from None
    if not parts.hostname or "@" in parts.netloc:
        raise UrlRefused
    # A trailing dot names the same host.
    target = Target(url=url, scheme=parts.scheme, host=parts.hostname.rstrip("."), port=port)
    if not policy.is_port_allowed(port) or _is_refused_address(target.host, policy):
        raise AddressRefused
    return target


def _is_refused_address(host: str, policy: EgressPolicy) -> bool:
    """Return whether the host is a refused IP address: known now, before the URL is stored for later."""
    return is_address(host) and not policy.is_allowed(host)


def _is_or_is_below(host: str, trusted: str) -> bool:
    if trusted.startswith("."):
        return host == trusted[1:] or host.endswith(trusted)
    return host == trusted
