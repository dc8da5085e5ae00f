"""URL schemes of message brokers, and which of them each setting accepts. No client library is imported here."""

from collections.abc import Collection
from functools import partial
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

VALKEY_SCHEMES = ("redis", "rediss")
SENTINEL_SCHEMES = ("sentinel",)
RABBITMQ_SCHEMES = ("amqp", "amqps")
BROKER_SCHEMES = (*VALKEY_SCHEMES, *SENTINEL_SCHEMES, *RABBITMQ_SCHEMES)


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, empty if it has none."""
    return urlsplit(url).scheme


def require_scheme(url: str, known: Collection[str]) -> str:
    """Return the URL unchanged. Raises ValueError, listing the accepted schemes, for any other scheme."""
    if scheme_of(url) not in known:
        schemes = ", ".join(f"{scheme}://" for scheme in known)
        raise ValueError(f"must begin with one of {schemes}")
    return url


ValkeyAddress = Annotated[str, AfterValidator(partial(require_scheme, known=VALKEY_SCHEMES))]
BrokerAddress = Annotated[str, AfterValidator(partial(require_scheme, known=BROKER_SCHEMES))]


def with_tls_verification(url: str) -> str:
    """Return the URL with certificate verification turned on, unless it sets `ssl_cert_reqs` itself."""
    # kombu verifies no certificate of a rediss:// URL by default.
    if not url.startswith("rediss:") or "ssl_cert_reqs=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
