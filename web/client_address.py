"""Whose connection a request came by: the address that strangers are counted by.

Left to others: which proxies are believed (the server, before the application), and that an IPv6 client is its network
of 64 bits (`shared.admission.stranger`).
"""

from __future__ import annotations

from wsgiref.types import WSGIEnvironment


def client_address(environ: WSGIEnvironment) -> str:
    """Give the address of the client; an empty one where the connection has none (a Unix socket)."""
    return str(environ.get("REMOTE_ADDR") or "")
