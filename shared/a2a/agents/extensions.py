"""Extensions: which an agent declares, which a request activates, and which are required.

A URI is an opaque name; another version is another extension. An undeclared extension is ignored, and an
extension stays inactive unless its dependencies are activated. Only sending a message fails without a required
extension: reading and canceling remain possible.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shared.a2a.agent_turns.updates import DeclaredExtension
from shared.a2a.agents.directory import Agent
from shared.a2a.agents.own_extensions import OwnExtensions
from shared.a2a.errors import ExtensionSupportRequired, InvalidParams
from shared.a2a.types import Message
from shared.errors import FieldError

URIS_LIMIT = 64
"""Extensions that one request may name; more are ignored."""


def declared_by(agent: Agent, own: OwnExtensions) -> tuple[DeclaredExtension, ...]:
    """Return what an agent's card declares: the extensions of this service and those of its behaviors.

    A behavior's declaration overrides that of the service or of an earlier behavior. A dependency of a declared
    extension is declared too, and required if that extension is required.
    """
    declared = {extension.uri: extension for extension in own.offered(agent.networks)}
    # In reverse, so that the default behavior, which is the first, wins.
    for behavior in reversed(agent.behaviors):
        declared |= {extension.uri: _completed(extension, declared) for extension in behavior.extensions}
    return tuple(_with_dependencies(declared).values())


def read_requested(values: Sequence[str]) -> tuple[str, ...]:
    """Return the URIs of `A2A-Extensions` headers, which may be repeated and name several each."""
    uris = (uri.strip() for value in values for uri in value.split(","))
    return tuple(dict.fromkeys(uri for uri in uris if uri))[:URIS_LIMIT]


def activate(declared: Iterable[DeclaredExtension], requested: Collection[str]) -> tuple[str, ...]:
    """Return the activated ones of the requested extensions, in the order of the request."""
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
    """Raise ExtensionSupportRequired unless all required extensions are active; it names those not requested."""
    unmet = [extension.uri for extension in declared if extension.required and extension.uri not in active]
    if unmet:
        # If all were requested, dependencies are missing: name the unmet ones then.
        missing = ", ".join([uri for uri in unmet if uri not in requested] or unmet)
        detail = (
            f"The agent requires extensions that the request does not name in `A2A-Extensions`: {missing}"
        )
        raise ExtensionSupportRequired(detail, extensions=missing)


def check_data(message: Message, active: Collection[str], own: OwnExtensions) -> None:
    """Check a message's data for the active extensions of this service. Raises InvalidParams.

    A message that lists an extension must carry its data if it has any. Data of other extensions is not checked.
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
        # An active extension without data is fine unless the message lists it.
        if data is None and uri not in listed:
            continue
        for name, message in own.find_errors(uri, data):
            path = ".".join(filter(None, (place, f"metadata[{uri}]", name)))
            yield FieldError(location="body", name=path, message=message)


def _with_dependencies(declared: Mapping[str, DeclaredExtension]) -> dict[str, DeclaredExtension]:
    """Add the dependencies of declared extensions; those of required extensions become required."""
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
    """Return a behavior's declaration, with what it lacks taken from this service's own declaration."""
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
