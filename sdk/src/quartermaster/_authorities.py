"""Which authorities vouch for a service's certificate: the public ones, else those that SSL_CERT_FILE names."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Give the authorities that every connection of this process trusts.

    Reading them takes 30 ms, in which an agent's event loop stands still; httpx reads them anew for each client.
    """
    return httpx.create_ssl_context()
