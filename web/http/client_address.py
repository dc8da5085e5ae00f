"""The client's address, which strangers are counted by and every line of the log carries.

An address is believed only from proxies that the operators named (`TRUSTED_PROXIES`): `X-Forwarded-For` is read from
its right end, as far as each address is one of those proxies. The edge replaces `REMOTE_ADDR` by the result, so that
nothing further in takes the proxy for the client.
"""

import ipaddress
from collections.abc import Sequence
from typing import Any
from wsgiref.types import WSGIEnvironment

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAXIMUM_HOPS = 16


def client_address(environ: WSGIEnvironment) -> str:
    """Give the address of the client; an empty one where the connection has none (a Unix socket)."""
    return str(environ.get("REMOTE_ADDR") or "")


def apply_forwarded_for(environ: dict[str, Any], trusted: Sequence[Network]) -> None:
    """Put the client's address in the place of the connection's; a Unix socket's other end is a proxy of this host."""
    peer = _parse(environ.get("REMOTE_ADDR") or "")
    is_socket = not environ.get("REMOTE_ADDR")
    if trusted and (is_socket or (peer is not None and _is_trusted(peer, trusted))):
        hops = environ.get("HTTP_X_FORWARDED_FOR", "").split(",")[-MAXIMUM_HOPS:]
        peer = _first_untrusted(peer, hops, trusted)
    if peer is not None:
        environ["REMOTE_ADDR"] = str(peer)


def _first_untrusted(peer: Address | None, hops: Sequence[str], trusted: Sequence[Network]) -> Address | None:
    """Walk from the nearest proxy outwards to the first address that is none of ours, or is no address."""
    for hop in reversed(hops):
        address = _parse(hop.strip())
        if address is None:
            return peer
        peer = address
        if not _is_trusted(address, trusted):
            return peer
    return peer


def _is_trusted(address: Address, trusted: Sequence[Network]) -> bool:
    return any(address in network for network in trusted)


def _parse(text: str) -> Address | None:
    """Read an address; one of IPv4 written in IPv6 becomes IPv4."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
