"""Parse the card of a remote agent, and reduce it to the members that our own card can show.

Missing members get defaults. Members that are present must be valid, because our card shows these members. An invalid
skill is left out, and the other skills stay.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pydantic import ValidationError

from shared.a2a.exact_json import parse, render
from shared.a2a.types import AgentCard, AgentSkill
from shared.a2a.updates import DeclaredExtension

# Limits the size of a card, because the card is stored in a row and parsed for each request of our own card.
MAX_CARD_BYTES = 256 << 10
SKILLS_LIMIT = 200
EXTENSIONS_LIMIT = 50
_URI_CHARACTERS = 2048
_REQUIRED = ("name", "description", "version", "supportedInterfaces")
_ABSENT: Mapping[str, Any] = {
    "capabilities": {},
    "defaultInputModes": [],
    "defaultOutputModes": [],
    "skills": [],
}
_NAMED_MISTAKES = 5


class Fault(StrEnum):
    """The problems of an endpoint; the values are part of the API."""

    UNREACHABLE = "unreachable"
    CARD_NOT_FOUND = "card_not_found"
    CARD_NOT_JSON = "card_not_json"
    CARD_INCOMPLETE = "card_incomplete"
    OLD_PROTOCOL = "protocol_too_old"
    NO_INTERFACE = "no_usable_interface"
    OTHER_ORIGIN = "interface_on_another_origin"
    CREDENTIAL_REFUSED = "credential_refused"
    INTERFACE_FAILED = "interface_failed"
    NO_TASK_LIST = "no_task_list"
    SKILLS_LEFT_OUT = "skills_left_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A problem or warning about an endpoint, for its administrator."""

    code: Fault
    message: str


class CardUnusable(Exception):
    """The agent cannot receive messages; `finding` has the reason."""

    def __init__(self, code: Fault, message: str) -> None:
        super().__init__(message)
        self.finding = Finding(code=code, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteCard:
    """A usable card: the document that the agent sent, and the parsed card."""

    document: Mapping[str, Any]
    card: AgentCard
    warnings: tuple[Finding, ...] = ()


def read_card(body: bytes) -> RemoteCard:
    """Parse the body of a card. Raises CardUnusable."""
    try:
        document = parse(body)
        written = render(document).encode()
    except (ValueError, RecursionError) as error:
        raise CardUnusable(Fault.CARD_NOT_JSON, "The document at the card's address is not JSON.") from error
    # PostgreSQL cannot store U+0000 in a text.
    if not isinstance(document, dict) or rb"\u0000" in written:
        raise CardUnusable(
            Fault.CARD_NOT_JSON,
            "The document at the card's address is not a JSON object, or contains the character U+0000.",
        )
    return read_document(document)


def read_document(document: Mapping[str, Any]) -> RemoteCard:
    """Return the card of a JSON object. Raises CardUnusable."""
    _require_new_protocol(document)
    missing = [name for name in _REQUIRED if not document.get(name)]
    if missing:
        raise CardUnusable(Fault.CARD_INCOMPLETE, f"The card lacks required members: {', '.join(missing)}.")
    # Remove null members, because null counts as absent in the protocol's JSON.
    declared = {**_ABSENT, **{name: value for name, value in document.items() if value is not None}}
    try:
        card = AgentCard.model_validate({**declared, "skills": ()})
    except ValidationError as error:
        raise CardUnusable(Fault.CARD_INCOMPLETE, f"The card is invalid: {_mistakes(error)}.") from error
    skills, warnings = _read_skills(declared["skills"])
    return RemoteCard(
        document=document, card=card.model_copy(update={"skills": skills}), warnings=tuple(warnings)
    )


def declared_extensions(card: AgentCard) -> tuple[DeclaredExtension, ...]:
    """Return the extensions that a card declares, each URI once. Leave out URIs that a header cannot contain."""
    usable = {at.uri: at for at in card.capabilities.extensions if _is_uri(at.uri)}
    return tuple(
        DeclaredExtension(
            uri=at.uri, description=at.description, required=bool(at.required), params=at.params
        )
        for at in list(usable.values())[:EXTENSIONS_LIMIT]
    )


def _require_new_protocol(document: Mapping[str, Any]) -> None:
    declared = document.get("protocolVersion")
    if not document.get("supportedInterfaces") and (declared or isinstance(document.get("url"), str)):
        version = f"version {declared}" if isinstance(declared, str) else "version 0.3 or older"
        raise too_old(version)


def too_old(version: str) -> CardUnusable:
    """Return the error for an agent with a version of the protocol before 1.0."""
    return CardUnusable(
        Fault.OLD_PROTOCOL,
        f"The agent uses {version} of the protocol, but only version 1.0 is supported. Update its server.",
    )


def _read_skills(declared: object) -> tuple[tuple[AgentSkill, ...], Iterable[Finding]]:
    listed = declared if isinstance(declared, list) else []
    skills = []
    for one in listed[:SKILLS_LIMIT]:
        try:
            skills.append(AgentSkill.model_validate({"tags": (), **one} if isinstance(one, dict) else one))
        except ValidationError:
            continue
    left_out = len(listed) - len(skills)
    if not left_out:
        return tuple(skills), ()
    message = (
        f"{left_out} of {len(listed)} skills were left out: invalid, or beyond the limit of {SKILLS_LIMIT}."
    )
    return tuple(skills), (Finding(code=Fault.SKILLS_LEFT_OUT, message=message),)


def _mistakes(error: ValidationError) -> str:
    mistakes = [f"{'.'.join(map(str, at['loc']))} ({at['msg']})" for at in error.errors()]
    return ", ".join(mistakes[:_NAMED_MISTAKES])


def _is_uri(uri: str) -> bool:
    """Return whether the `A2A-Extensions` header can name this URI."""
    return len(uri) <= _URI_CHARACTERS and uri.isascii() and uri.isprintable() and not set(uri) & {",", " "}
