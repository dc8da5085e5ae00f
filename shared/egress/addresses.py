"""SSRF protection: decide to which IP addresses the service may connect.

Only global IPv4 and global unicast IPv6 addresses are allowed, except tunnels into other networks, test networks and
cloud endpoints. The module `ipaddress` is not enough: it classifies NAT64, 6to4 relays and Azure's wire server as
public.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

_GLOBAL_UNICAST = ip_network("2000::/3")
_REFUSED_IPV4 = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's wire server: a public address served inside the cloud
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/3",
    )
)
_REFUSED_IPV6 = tuple(
    ip_network(network)
    for network in (
        "2001::/23",  # Teredo, ORCHID and other IETF protocol assignments
        "2001:db8::/32",
        "2002::/16",  # 6to4: embeds an IPv4 address
        "3fff::/20",
    )
)
_NEVER = tuple(
    ip_network(network)
    for network in (
        "0.0.0.0/8",
        "100.100.100.200/32",
        "168.63.129.16/32",
        "169.254.0.0/16",
        "192.0.0.192/32",
        "224.0.0.0/3",
        "::/128",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2002::/16",
        "fd00:ec2::/32",
        "fd20:ce::/32",
        "fe80::/10",
        "ff00::/8",
    )
)
"""Cloud metadata servers and the ranges that can embed their addresses. They are always refused."""


def is_address(host: str) -> bool:
    """Return whether a host is an IP address in its usual form, which needs no name resolution."""
    try:
        _parse(host)
    except ValueError:
        return False
    return True


def is_public(address: str) -> bool:
    """Return whether an address, as the resolver returns it, is on the public internet."""
    parsed = _parse(address)
    if isinstance(parsed, IPv4Address):
        return parsed.is_global and not any(parsed in network for network in _REFUSED_IPV4)
    return parsed in _GLOBAL_UNICAST and not any(parsed in network for network in _REFUSED_IPV6)


def is_private(address: str) -> bool:
    """Return whether an address belongs to a private network or to this host, and is not always refused."""
    parsed = _parse(address)
    return not is_public(address) and not any(
        parsed in network for network in _NEVER if network.version == parsed.version
    )


def _parse(address: str) -> IPv4Address | IPv6Address:
    parsed = ip_address(address.partition("%")[0])
    # Check the embedded IPv4 address: a connection to a mapped address (::ffff:a.b.c.d) goes to a.b.c.d.
    mapped = parsed.ipv4_mapped if isinstance(parsed, IPv6Address) else None
    return mapped or parsed
