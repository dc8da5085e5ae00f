"""Whose request it is: the client's address, which strangers are counted by and every line of the log carries.

Protects one rule: an address is believed only from proxies that the operators named (`TRUSTED_PROXIES`). The header
`X-Forwarded-For` is read from its right end, where the nearest proxy wrote, and only as far as each address is one of
those proxies; whatever stands left of the first stranger was said by that stranger.

The edge puts the address in the place of the connection's (`REMOTE_ADDR`), so that nothing further in can take the
proxy for the client. That an IPv6 client is its network of 64 bits is `shared.admission.stranger`'s affair.
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


def believe_proxies(environ: dict[str, Any], trusted: Sequence[Network]) -> None:
    """Put the client's address in the place of the connection's; a Unix socket's other end is a proxy of this host."""
    peer = _parse(environ.get("REMOTE_ADDR") or "")
    is_socket = not environ.get("REMOTE_ADDR")
    if trusted and (is_socket or (peer is not None and _is_trusted(peer, trusted))):
        hops = environ.get("HTTP_X_FORWARDED_FOR", "").split(",")[-MAXIMUM_HOPS:]
        peer = _nearest_stranger(peer, hops, trusted)
    if peer is not None:
        environ["REMOTE_ADDR"] = str(peer)


def _nearest_stranger(
    peer: Address | None, hops: Sequence[str], trusted: Sequence[Network]
) -> Address | None:
    """Walk from the nearest proxy outwards to the first address that is none of ours; a word that is none ends it."""
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
    """Read an address; one of IPv4 written in IPv6 is the IPv4 address that it is."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
