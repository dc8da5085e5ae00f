"""A2A extensions: an agent declares and may require extensions, and a request activates them.

A URI identifies an extension and is compared as a whole: another version has another URI and is another extension.
Extensions that the agent does not declare are ignored. If a dependency of an extension is not activated, the extension
is not activated either.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HEADER = "A2A-Extensions"
REQUESTED_LIMIT = 64


@dataclass(frozen=True)
class Extension:
    """An extension in an agent's card. `requires` contains the URIs of the extensions on which it depends."""

    uri: str
    description: str = ""
    required: bool = False
    params: Mapping[str, Any] | None = None
    requires: Collection[str] = field(default=())


def read_requested(values: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct URIs in all `A2A-Extensions` headers, at most 64. A header is a comma-separated list."""
    uris = (uri.strip() for value in values for uri in value.split(","))
    return tuple(dict.fromkeys(uri for uri in uris if uri))[:REQUESTED_LIMIT]


def activate(declared: Iterable[Extension], requested: Sequence[str]) -> tuple[str, ...]:
    """Return the URIs of the declared extensions that a request activates, in the order of the request."""
    active = {extension.uri: extension for extension in declared if extension.uri in requested}
    while True:
        # Repeat until no extension is removed: a removed extension may be a dependency of another extension.
        unmet = [uri for uri, extension in active.items() if not set(extension.requires) <= set(active)]
        if not unmet:
            return tuple(uri for uri in requested if uri in active)
        for uri in unmet:
            del active[uri]


def find_missing(declared: Iterable[Extension], active: Collection[str]) -> tuple[str, ...]:
    """Return the required extensions that are not active, and the inactive extensions on which they depend."""
    required = (extension for extension in declared if extension.required and extension.uri not in active)
    named = (uri for extension in required for uri in (extension.uri, *extension.requires))
    return tuple(dict.fromkeys(uri for uri in named if uri not in active))
