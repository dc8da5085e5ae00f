"""The schemes of brokers' addresses, and which of them the settings take: what is known without any client."""

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
    """Give the scheme of an address; empty where there is none."""
    return urlsplit(url).scheme


def require_scheme(url: str, known: Collection[str]) -> str:
    """Give the address back. Raises ValueError, which names the known schemes, for another's."""
    if scheme_of(url) not in known:
        schemes = ", ".join(f"{scheme}://" for scheme in known)
        raise ValueError(f"must begin with one of {schemes}")
    return url


ValkeyAddress = Annotated[str, AfterValidator(partial(require_scheme, known=VALKEY_SCHEMES))]
BrokerAddress = Annotated[str, AfterValidator(partial(require_scheme, known=BROKER_SCHEMES))]


def with_tls_verification(url: str) -> str:
    """Complete an address with the verification over TLS that kombu leaves out where nothing is said of it."""
    if not url.startswith("rediss:") or "ssl_cert_reqs=" in url:
        return url
    return f"{url}{'&' if '?' in url else '?'}ssl_cert_reqs=required"
