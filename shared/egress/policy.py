"""The operator's rules for outgoing requests: one value that is passed to every outgoing request."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from shared.config.settings import Settings
from shared.egress.addresses import is_private, is_public

Resolve = Callable[[str, int], Sequence[str]]
WEB_PORTS = frozenset({80, 443})


def resolve(host: str, port: int) -> Sequence[str]:
    """Return all addresses of a host that the system's resolver finds. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(address[0]) for *_, address in found))


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPolicy:
    """The rules for allowed addresses, schemes and ports. The defaults are the strictest rules."""

    allow_private: bool = False
    """Whether private networks, this host and all ports are allowed too. Metadata servers are never allowed."""
    allow_http: bool = False
    """Whether credentials and notifications may be sent without TLS.

    Content without credentials may always use http.
    """
    resolve: Resolve = resolve
    ca_bundle: str | None = None
    """A file of certificate authorities to trust instead of the public ones."""

    @classmethod
    def of(cls, settings: Settings) -> EgressPolicy:
        """Return the policy that the settings define."""
        return cls(allow_private=settings.egress_allow_private, allow_http=settings.egress_allow_http)

    def is_allowed(self, address: str) -> bool:
        """Return whether the service may connect to an address."""
        return is_public(address) or (self.allow_private and is_private(address))

    def is_port_allowed(self, port: int) -> bool:
        """Return whether the service may connect to a port."""
        return self.allow_private or port in WEB_PORTS
