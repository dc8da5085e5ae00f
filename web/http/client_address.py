"""The client's address. Anonymous clients are counted by it, and every log line contains it.

`X-Forwarded-For` counts only if a proxy in `TRUSTED_PROXIES` sent it. The header is read from its right end,
as long as each address is a trusted proxy. The middleware stores the result in `REMOTE_ADDR`, so that no
later code takes the proxy for the client.
"""

import ipaddress
from collections.abc import Sequence
from typing import Any
from wsgiref.types import WSGIEnvironment

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# A client can put any number of addresses into the header. Only trusted proxies count, so read at most
# this many addresses.
MAXIMUM_HOPS = 16


def client_address(environ: WSGIEnvironment) -> str:
    """Return the client's address, or an empty string if the connection has none (a Unix socket)."""
    return str(environ.get("REMOTE_ADDR") or "")


def apply_forwarded_for(environ: dict[str, Any], trusted: Sequence[Network]) -> None:
    """Replace the connection's address by the client's address.

    The other end of a Unix socket counts as a trusted proxy on this host.
    """
    peer = _parse(environ.get("REMOTE_ADDR") or "")
    # nginx on this host may connect through a Unix socket. Such a connection has no address.
    is_socket = not environ.get("REMOTE_ADDR")
    if trusted and (is_socket or (peer is not None and _is_trusted(peer, trusted))):
        hops = environ.get("HTTP_X_FORWARDED_FOR", "").split(",")[-MAXIMUM_HOPS:]
        peer = _first_untrusted(peer, hops, trusted)
    if peer is not None:
        environ["REMOTE_ADDR"] = str(peer)


def _first_untrusted(peer: Address | None, hops: Sequence[str], trusted: Sequence[Network]) -> Address | None:
    """Return the first address that is not a trusted proxy, from the nearest proxy outwards.

    If there is no such address, return the last valid address.
    """
    for hop in reversed(hops):
        address = _parse(hop.strip())
        # Stop at a malformed address: neither it nor any address beyond it can be trusted.
        if address is None:
            return peer
        peer = address
        if not _is_trusted(address, trusted):
            return peer
    return peer


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


def _parse(text: str) -> Address | None:
    """Parse an address. An IPv4 address mapped to IPv6 becomes IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
