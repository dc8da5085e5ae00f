"""The certificate authorities that connections trust: public authorities, or those in the file SSL_CERT_FILE."""

from __future__ import annotations

import ssl
from functools import cache

import httpx


@cache
def trusted_authorities() -> ssl.SSLContext:
    """Return the TLS context that all connections of this process share."""
    # Create the context once: by default each httpx client reads all authorities, which blocks the loop for 30 ms.
    return httpx.create_ssl_context()
