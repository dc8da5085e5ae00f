"""Check the text of URLs and headers. The addresses of host names are checked when a connection is opened.

URLs are normalized in the way in which `requests` sends them. So the host that is compared with the trusted hosts is
the host to which the request is sent.
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
"""Headers that only the connection may set. Headers that begin with `proxy-` or `sec-` are reserved too."""
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,200}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A URL that may be requested, and the scheme, host and port of its server."""

    url: str = field(repr=False)
    scheme: str
    host: str
    port: int

    def shares_origin(self, other: Target) -> bool:
        """Return whether both URLs have the same scheme, host and port."""
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port)

    def is_trusted(self, trusted_hosts: Collection[str]) -> bool:
        """Return whether the host is trusted.

        A trusted host with a leading dot includes the domain and its subdomains.
        """
        return any(_is_or_is_below(self.host, trusted.lower()) for trusted in trusted_hosts)


def parse_url(url: str, policy: EgressPolicy, *, with_secrets: bool) -> Target:
    """Parse a URL that will be requested. `with_secrets` says whether the request has credentials.

    Raises UrlRefused. Raises SchemeRefused if the scheme is neither http nor https, or is http with credentials. Raises
    AddressRefused if the port or an IP address as host is not allowed.
    """
    if len(url) > MAX_URL_CHARACTERS or _FORBIDDEN.search(url):
        raise UrlRefused
    scheme = url.partition(":")[0].lower()
    if scheme not in DEFAULT_PORTS or (scheme == "http" and with_secrets and not policy.allow_http):
        raise SchemeRefused
    return _target(_normalize(url), policy)


def follow(target: Target, location: str, policy: EgressPolicy, *, with_secrets: bool) -> Target:
    """Return the target of a redirect.

    Raises the errors of `parse_url`, and SchemeRefused if https redirects to http.
    """
    try:
        # Decode again as UTF-8, which servers send: http.client decodes headers as Latin-1.
        url = urljoin(target.url, location.encode("latin-1").decode("utf-8").strip(" "))
    except (ValueError, UnicodeError):
        raise UrlRefused from None
    # Treat a redirect from https to http like a URL with credentials, so that it is refused unless the policy allows
    # http.
    downgrades = target.scheme == "https" and not url.lower().startswith("https:")
    return parse_url(url, policy, with_secrets=with_secrets or downgrades)


def check_headers(headers: Mapping[str, str]) -> None:
    """Raise HeaderRefused if another party may not choose one of these headers for requests of this service."""
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
    # Remove the fragment, because it is never sent.
    return (prepared.url or "").partition("#")[0]


def _target(url: str, policy: EgressPolicy) -> Target:
    try:
        parts = urlsplit(url)
        port = parts.port if parts.port is not None else DEFAULT_PORTS[parts.scheme]
    except (ValueError, KeyError):
        raise UrlRefused from None
    if not parts.hostname or "@" in parts.netloc:
        raise UrlRefused
    # Remove a trailing dot, with which a name means the same host.
    target = Target(url=url, scheme=parts.scheme, host=parts.hostname.rstrip("."), port=port)
    if not policy.is_port_allowed(port) or _is_refused_address(target.host, policy):
        raise AddressRefused
    return target


def _is_refused_address(host: str, policy: EgressPolicy) -> bool:
    """Return whether the host is an IP address that is not allowed. This check needs no name resolution."""
    return is_address(host) and not policy.is_allowed(host)


def _is_or_is_below(host: str, trusted: str) -> bool:
    if trusted.startswith("."):
        return host == trusted[1:] or host.endswith(trusted)
    return host == trusted
