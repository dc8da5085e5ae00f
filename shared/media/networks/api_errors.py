"""Read the errors of networks' APIs, and keep credentials to the network's own hosts.

A token goes only over https to hosts of the network (or to the server that an operator named), whatever an answer or
a webhook says.
"""

from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

from shared.egress.errors import SourceStatusError
from shared.errors import DomainError
from shared.media.errors import SourceElsewhere, SourceGone, SourceMissing, SourceRefused, SourceUnreadable
from shared.media.networks.base import Ask
from shared.media.networks.payloads import read_object
from shared.media.networks.webhooks import Payload

_REFUSED = frozenset({401, 403})
_MISSING = 404
"""What a network tells of may take a while to reach the servers that have it."""
_GONE = 410


def ask_api(ask: Ask, url: str, headers: Mapping[str, str]) -> Payload:
    """Ask an API for a JSON object. Raises what `ask` raises, SourceRefused and SourceGone by the answer's status."""
    try:
        return read_object(ask(url, headers))
    except SourceStatusError as error:
        raise explain(error) from None


def explain(error: SourceStatusError) -> DomainError:
    """Say what a network's status means for an attachment of which it has told us itself."""
    if error.status in _REFUSED:
        return SourceRefused()
    if error.status == _MISSING:
        return SourceMissing()
    return SourceGone() if error.status == _GONE else error


def require_url(value: str | None) -> str:
    """Give the address that an answer names. Raises SourceUnreadable where it names none."""
    if value is None:
        raise SourceUnreadable
    return value


def trust(hosts: Collection[str], base_url: str) -> frozenset[str]:
    """Add the server that stands at a network's API address, and all below it, to the network's own hosts."""
    return frozenset({*hosts, f".{urlsplit(base_url).hostname}"})


def require_hosted(url: str, trusted_hosts: Collection[str]) -> None:
    """Raise SourceElsewhere unless a URL is of these hosts; one with a leading dot stands for its whole domain."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        raise SourceElsewhere from None
    if not any(host == trusted[1:] or host.endswith(trusted) for trusted in trusted_hosts):
        raise SourceElsewhere
