"""Determine which extensions an agent declares, which of them a request activates, and which are required.

A URI is an opaque name, so another version has another URI and is another extension. An undeclared extension is
ignored. An extension stays inactive unless its dependencies are activated. Without a required extension, a request that
sends a message fails, but reading and canceling remain possible.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared.a2a.agents.directory import Agent
from shared.a2a.agents.own_extensions import OwnExtensions
from shared.a2a.errors import ExtensionSupportRequired, InvalidParams
from shared.a2a.types import Message
from shared.a2a.updates import DeclaredExtension
from shared.errors import FieldError

URIS_LIMIT = 64
"""Extensions that one request may name; more are ignored."""


def declared_by(agent: Agent, own: OwnExtensions) -> tuple[DeclaredExtension, ...]:
    """Return the extensions on an agent's card: the extensions of this service and of the agent's behaviors.

    A behavior's declaration overrides the declaration of the service. If several behaviors declare an extension, the
    first behavior wins. The dependencies of a declared extension are declared too, and are required if the extension is
    required.
    """
    declared = {extension.uri: extension for extension in own.offered(agent.networks)}
    # In reverse, so that the default behavior, which is the first, wins.
    for behavior in reversed(agent.behaviors):
        declared |= {extension.uri: _completed(extension, declared) for extension in behavior.extensions}
    return tuple(_with_dependencies(declared).values())


def read_requested(values: Sequence[str]) -> tuple[str, ...]:
    """Return the URIs in the values of `A2A-Extensions` headers. Each header may contain several URIs."""
    uris = (uri.strip() for value in values for uri in value.split(","))
    return tuple(dict.fromkeys(uri for uri in uris if uri))[:URIS_LIMIT]


def activate(declared: Iterable[DeclaredExtension], requested: Collection[str]) -> tuple[str, ...]:
    """Return the requested extensions that are activated, in the order of the request."""
    active = {extension.uri: extension for extension in declared if extension.uri in requested}
    # Removing one extension may leave others without a dependency, so repeat until nothing changes.
    while True:
        unmet = [uri for uri, extension in active.items() if not set(extension.requires) <= set(active)]
        if not unmet:
            return tuple(uri for uri in requested if uri in active)
        for uri in unmet:
            del active[uri]


def require(
    declared: Iterable[DeclaredExtension], active: Collection[str], requested: Collection[str] = ()
) -> None:
    """Raise ExtensionSupportRequired unless all required extensions are active. The error names the missing ones."""
    unmet = [extension.uri for extension in declared if extension.required and extension.uri not in active]
    if unmet:
        # If all required extensions were requested, some lack a dependency: name all inactive extensions then.
        missing = ", ".join([uri for uri in unmet if uri not in requested] or unmet)
        detail = (
            f"The agent requires extensions that the request does not name in `A2A-Extensions`: {missing}"
        )
        raise ExtensionSupportRequired(detail, extensions=missing)


def check_data(message: Message, active: Collection[str], own: OwnExtensions) -> None:
    """Check a message's data for the active extensions of this service. Raises InvalidParams.

    If a message lists an extension that defines data, the message must contain this data. Data of other extensions is
    not checked.
    """
    findings = list(_findings("message", message.metadata, message.extensions, active, own))
    for index, part in enumerate(message.parts):
        findings += _findings(f"message.parts.{index}", part.metadata, (), active, own)
    if findings:
        raise InvalidParams("The data of an activated extension is invalid.", errors=findings)


def _findings(
    place: str,
    metadata: Mapping[str, Any] | None,
    listed: Collection[str],
    active: Collection[str],
    own: OwnExtensions,
) -> Iterable[FieldError]:
    for uri in active:
        data = (metadata or {}).get(uri)
        # An active extension needs no data unless the message lists the extension.
        if data is None and uri not in listed:
            continue
        for name, message in own.find_errors(uri, data):
            path = ".".join(filter(None, (place, f"metadata[{uri}]", name)))
            yield FieldError(location="body", name=path, message=message)


def _with_dependencies(declared: Mapping[str, DeclaredExtension]) -> dict[str, DeclaredExtension]:
    """Return the declared extensions and their dependencies. Dependencies of required extensions become required."""
    known = dict(declared)
    unread = list(known.values())
    while unread:
        extension = unread.pop()
        for uri in extension.requires:
            needed = known.get(uri) or DeclaredExtension(uri=uri)
            changed = replace(needed, required=needed.required or extension.required)
            if known.get(uri) != changed:
                known[uri] = changed
                unread.append(changed)
    return known


def _completed(extension: DeclaredExtension, declared: Mapping[str, DeclaredExtension]) -> DeclaredExtension:
    """Return a behavior's declaration. Missing members are taken from this service's declaration of the extension."""
    known = declared.get(extension.uri)
    if known is None:
        return extension
    return DeclaredExtension(
        uri=extension.uri,
        description=extension.description or known.description,
        required=extension.required,
        params=extension.params if extension.params is not None else known.params,
        requires=extension.requires,
    )
