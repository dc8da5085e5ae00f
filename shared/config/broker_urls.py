"""The URL schemes of message brokers, and the schemes that each setting accepts. Imports no client library."""

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
    """Return the scheme of a URL, or an empty string if the URL has none."""
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
    """Return the URL with certificate verification turned on, unless the URL sets `ssl_cert_reqs`."""
    # By default kombu verifies no certificate for a rediss:// URL, so add the option that turns verification on.
    if not url.startswith("rediss:") or "ssl_cert_reqs=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
