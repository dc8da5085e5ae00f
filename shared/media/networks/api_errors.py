"""Translate errors of networks' APIs, and restrict credentials to the network's own hosts.

A token is sent only over https, and only to hosts of the network or to the server that an operator configured. No
response or webhook can add another host.
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
"""The status of a file that a network has announced but that has not yet reached the network's servers."""
_GONE = 410


def ask_api(ask: Ask, url: str, headers: Mapping[str, str]) -> Payload:
    """Return a JSON object from an API. Raises what `ask` raises, SourceRefused and SourceGone by the status."""
    try:
        return read_object(ask(url, headers))
    except SourceStatusError as error:
        raise explain(error) from None


def explain(error: SourceStatusError) -> DomainError:
    """Return the error that a status means for an attachment that the network itself announced."""
    if error.status in _REFUSED:
        return SourceRefused()
    if error.status == _MISSING:
        return SourceMissing()
    return SourceGone() if error.status == _GONE else error


def require_url(value: str | None) -> str:
    """Return the URL. Raises SourceUnreadable if it is None."""
    if value is None:
        raise SourceUnreadable
    return value


def trust(hosts: Collection[str], base_url: str) -> frozenset[str]:
    """Return the network's hosts plus the host of its API's address and all subdomains."""
    # The leading dot includes the host itself and its subdomains (`require_hosted`).
    return frozenset({*hosts, f".{urlsplit(base_url).hostname}"})


def require_hosted(url: str, trusted_hosts: Collection[str]) -> None:
    """Raise SourceElsewhere if the host of a URL is not trusted. A leading dot includes all subdomains."""
    try:
        host = urlsplit(url).hostname or ""
    except ValueError:
        raise SourceElsewhere from None
    if not any(host == trusted[1:] or host.endswith(trusted) for trusted in trusted_hosts):
        raise SourceElsewhere
