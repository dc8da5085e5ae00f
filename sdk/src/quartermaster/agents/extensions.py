"""Extensions: what an agent declares, what a request activates, what is required.

A URI is an opaque name; another version is another extension. One that is not declared is ignored, and one whose
dependencies are not activated is not activated.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

HEADER = "A2A-Extensions"
REQUESTED_LIMIT = 64


@dataclass(frozen=True)
class Extension:
    """An extension that an agent declares in its card."""

    uri: str
    description: str = ""
    required: bool = False
    params: Mapping[str, Any] | None = None
    requires: Collection[str] = field(default=())


def read_requested(values: Sequence[str]) -> tuple[str, ...]:
    """Read the URIs of `A2A-Extensions` headers, which may be repeated and hold several each."""
    uris = (uri.strip() for value in values for uri in value.split(","))
    return tuple(dict.fromkeys(uri for uri in uris if uri))[:REQUESTED_LIMIT]


def activate(declared: Iterable[Extension], requested: Sequence[str]) -> tuple[str, ...]:
    """Give what is activated of what a request names, in its order."""
    active = {extension.uri: extension for extension in declared if extension.uri in requested}
    while True:
        unmet = [uri for uri, extension in active.items() if not set(extension.requires) <= set(active)]
        if not unmet:
            return tuple(uri for uri in requested if uri in active)
        for uri in unmet:
            del active[uri]


def find_missing(declared: Iterable[Extension], active: Collection[str]) -> tuple[str, ...]:
    """Give what is required and not activated, with the dependencies that it lacks."""
    required = (extension for extension in declared if extension.required and extension.uri not in active)
    named = (uri for extension in required for uri in (extension.uri, *extension.requires))
    return tuple(dict.fromkeys(uri for uri in named if uri not in active))
