"""Find the card of a deployment's own server, and choose the interface for messages to it.

The card is at `card_url`, below the endpoint's URL, or at the root of the URL's origin. Messages go only to the
registered origin, because the card may contain an internal address or the address of another server.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from shared.a2a.agents.card_documents import (
    MAX_CARD_BYTES,
    CardUnusable,
    Fault,
    RemoteCard,
    read_card,
    too_old,
)
from shared.a2a.remote.endpoints import Binding, Endpoint
from shared.a2a.types import AgentCard, AgentInterface
from shared.egress.errors import EgressError, SourceStatusError
from shared.egress.fetch import FetchLimits, fetch
from shared.egress.policy import EgressPolicy
from shared.egress.urls import Target, parse_url
from shared.encryption import Encryption

VERSION = "1.0"
WELL_KNOWN = "/.well-known/agent-card.json"
LIMITS = FetchLimits(maximum_bytes=MAX_CARD_BYTES, deadline_seconds=10.0, idle_seconds=5.0)
REFUSED = frozenset({401, 403})
_NOT_MODIFIED = 304
_NOT_THERE = frozenset({404, 405, 410})
_BINDINGS = {"HTTP+JSON": Binding.HTTP_JSON, "JSONRPC": Binding.JSONRPC}
# The ETag is sent back in a header, so an ETag that is longer or unprintable counts as absent.
_ETAG_CHARACTERS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Interface:
    """The binding and the address for messages to an agent."""

    binding: Binding
    url: str
    tenant: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCard:
    """A usable card, its address, and the chosen interface."""

    remote: RemoteCard
    address: str
    etag: str | None
    interface: Interface


class CardReader:
    """Reads cards under the egress policy of the installation."""

    def __init__(self, policy: EgressPolicy, encryption: Encryption) -> None:
        self.policy = policy
        self.encryption = encryption

    def read(self, endpoint: Endpoint, *, etag: str | None = None) -> FoundCard | None:
        """Return the card of an endpoint, or None if the card still has this ETag. Raises CardUnusable."""
        unusable = CardUnusable(
            Fault.CARD_NOT_FOUND, "No card was found. If the card has another address, set cardUrl."
        )
        for address in _addresses(endpoint):
            try:
                body, new_etag = self._fetch(endpoint, address, etag)
                if body is None:
                    return None
                remote = read_card(body)
            except CardUnusable as error:
                # Try the next address also after CARD_NOT_JSON: some servers return a web page for every unknown path,
                # and the card may be at the root of the origin.
                if error.finding.code is Fault.CARD_NOT_JSON or _is_missing(unusable):
                    unusable = error
                if error.finding.code not in (Fault.CARD_NOT_FOUND, Fault.CARD_NOT_JSON):
                    raise
                continue
            interface = choose_interface(endpoint, remote.card, self.policy)
            return FoundCard(remote=remote, address=address, etag=new_etag, interface=interface)
        raise unusable

    def _fetch(self, endpoint: Endpoint, address: str, etag: str | None) -> tuple[bytes | None, str | None]:
        headers = {
            "Accept": "application/json",
            "A2A-Version": VERSION,
            **self._credential(endpoint, address),
        }
        if etag is not None:
            headers["If-None-Match"] = etag
        try:
            with fetch(address, policy=self.policy, limits=LIMITS, headers=headers) as found:
                return b"".join(found.chunks()), _kept(found.headers.get("ETag"))
        except SourceStatusError as answered:
            if answered.status == _NOT_MODIFIED and etag is not None:
                return None, etag
            raise _refused(answered.status) from answered
        except EgressError as error:
            raise CardUnusable(
                Fault.UNREACHABLE, f"The card cannot be requested from {host_of(address)}: {error.detail}"
            ) from error

    def _credential(self, endpoint: Endpoint, address: str) -> Mapping[str, str]:
        """Return the credential's header if the address has the endpoint's own origin; otherwise no header."""
        if not self._target(address).shares_origin(self._target(endpoint.url)):
            return {}
        return endpoint.credential_headers(self.encryption)

    def _target(self, address: str) -> Target:
        try:
            return parse_url(address, self.policy, with_secrets=True)
        except EgressError as error:
            raise CardUnusable(Fault.UNREACHABLE, error.detail) from error


def choose_interface(endpoint: Endpoint, card: AgentCard, policy: EgressPolicy) -> Interface:
    """Return the first usable interface, in the card's order of preference. Raises CardUnusable."""
    usable = [at for at in card.supported_interfaces if _is_supported(at)]
    if not usable:
        raise _none_usable(card)
    # The administrator chose the address, so use the card only to choose the binding.
    if endpoint.interface_override is not None:
        named = [at for at in usable if at.url.rstrip("/") == endpoint.interface_override.rstrip("/")]
        return _interface((named or usable)[0], endpoint.interface_override)
    for interface in usable:
        if _shares_origin(interface.url, endpoint.url, policy):
            return _interface(interface, interface.url)
    raise CardUnusable(
        Fault.OTHER_ORIGIN,
        f"The card's address for messages is at {host_of(usable[0].url)}, but the endpoint is at"
        f" {host_of(endpoint.url)}. Correct the card, or set interfaceUrl to the correct address.",
    )


def host_of(address: str) -> str:
    """Return the origin of an address, without its path and query, which may be secret."""
    try:
        parts = urlsplit(address)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"[:300]
    except ValueError:
        return "a malformed address"


def _addresses(endpoint: Endpoint) -> Iterator[str]:
    if endpoint.card_url is not None:
        yield endpoint.card_url
        return
    yield from dict.fromkeys((endpoint.url + WELL_KNOWN, host_of(endpoint.url) + WELL_KNOWN))


def _is_missing(unusable: CardUnusable) -> bool:
    return unusable.finding.code is Fault.CARD_NOT_FOUND


def _refused(status: int) -> CardUnusable:
    if status in REFUSED:
        return CardUnusable(
            Fault.CREDENTIAL_REFUSED,
            f"The server refused the request for the card with status {status}. Check the credential.",
        )
    if status in _NOT_THERE:
        message = (
            f"No card was found: its address returned status {status}. For another address, set cardUrl."
        )
        return CardUnusable(Fault.CARD_NOT_FOUND, message)
    return CardUnusable(Fault.UNREACHABLE, f"The card's address returned status {status}.")


def _kept(etag: str | None) -> str | None:
    if etag is None or len(etag) > _ETAG_CHARACTERS or not etag.isascii() or not etag.isprintable():
        return None
    return etag


def _is_supported(interface: AgentInterface) -> bool:
    version = interface.protocol_version
    is_version = version == VERSION or version.startswith(f"{VERSION}.")
    return is_version and interface.protocol_binding.upper() in _BINDINGS


def _none_usable(card: AgentCard) -> CardUnusable:
    offered = [f"{at.protocol_binding} {at.protocol_version}"[:60] for at in card.supported_interfaces][:10]
    if all(at.protocol_version.startswith("0.") for at in card.supported_interfaces):
        return too_old(f"version {card.supported_interfaces[0].protocol_version[:20]}")
    return CardUnusable(
        Fault.NO_INTERFACE,
        f"The card offers {', '.join(offered)}. Supported are HTTP+JSON and JSONRPC in version {VERSION}.",
    )


def _interface(interface: AgentInterface, url: str) -> Interface:
    binding = _BINDINGS[interface.protocol_binding.upper()]
    # HTTP+JSON appends paths to the address; JSON-RPC uses it unchanged.
    url = url.rstrip("/") if binding is Binding.HTTP_JSON else url
    return Interface(binding=binding, url=url, tenant=interface.tenant or None)


def _shares_origin(address: str, other: str, policy: EgressPolicy) -> bool:
    try:
        one, base = (parse_url(at, policy, with_secrets=True) for at in (address, other))
    except EgressError:
        return False
    return one.shares_origin(base)
