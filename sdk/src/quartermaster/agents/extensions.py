"""A2A extensions: which ones an agent declares, a request activates, and the agent requires.

A URI is an opaque name, and another version is another extension. Undeclared extensions are ignored. An extension is
not activated if one of its dependencies is not.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HEADER = "A2A-Extensions"
REQUESTED_LIMIT = 64


@dataclass(frozen=True)
class Extension:
    """An extension in an agent's card. `requires` holds the URIs of its dependencies."""

    uri: str
    description: str = ""
    required: bool = False
    params: Mapping[str, Any] | None = None
    requires: Collection[str] = field(default=())


def read_requested(values: Sequence[str]) -> tuple[str, ...]:
    """Return the distinct URIs of all `A2A-Extensions` headers (comma-separated), at most 64."""
    uris = (uri.strip() for value in values for uri in value.split(","))
    return tuple(dict.fromkeys(uri for uri in uris if uri))[:REQUESTED_LIMIT]


def activate(declared: Iterable[Extension], requested: Sequence[str]) -> tuple[str, ...]:
    """Return the extensions that a request activates, in its order."""
    active = {extension.uri: extension for extension in declared if extension.uri in requested}
    while True:
        # Repeat: an extension that is removed may be a dependency of another.
        unmet = [uri for uri, extension in active.items() if not set(extension.requires) <= set(active)]
        if not unmet:
            return tuple(uri for uri in requested if uri in active)
        for uri in unmet:
            del active[uri]


def find_missing(declared: Iterable[Extension], active: Collection[str]) -> tuple[str, ...]:
    """Return the required extensions that are not active, with their inactive dependencies."""
    required = (extension for extension in declared if extension.required and extension.uri not in active)
    named = (uri for extension in required for uri in (extension.uri, *extension.requires))
    return tuple(dict.fromkeys(uri for uri in named if uri not in active))
