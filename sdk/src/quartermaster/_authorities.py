"""The certificate authorities that connections trust: the public ones, or those of SSL_CERT_FILE."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Return the TLS context that all connections of this process share."""
    # httpx reads the authorities for each client, which blocks an agent's event loop for 30 ms.
    return httpx.create_ssl_context()
