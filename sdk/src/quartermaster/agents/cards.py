"""Create the A2A card of an agent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentSkill,
    HTTPAuthSecurityScheme,
    SecurityRequirement,
    SecurityScheme,
    StringList,
)

from quartermaster.agents.extensions import Extension
from quartermaster.agents.skills import Skill

PROTOCOL_VERSION = "1.0"
_SCHEME = "service"


def compose_card(
    *,
    name: str,
    description: str,
    version: str,
    skills: Iterable[Skill],
    extensions: Sequence[Extension],
    is_anonymous: bool,
) -> AgentCard:
    """Return an agent's card without interfaces. `with_address` adds the interfaces with their addresses."""
    described = [_describe(skill) for skill in skills]
    card = AgentCard(
        name=name,
        description=description,
        version=version,
        capabilities=AgentCapabilities(streaming=True, extensions=[_declare(at) for at in extensions]),
        default_input_modes=_united(skill.input_modes for skill in described),
        default_output_modes=_united(skill.output_modes for skill in described),
        skills=described,
    )
    if not is_anonymous:
        card.security_schemes[_SCHEME].CopyFrom(_security_scheme())
        card.security_requirements.append(SecurityRequirement(schemes={_SCHEME: StringList()}))
    return card


def with_address(card: AgentCard, url: str) -> AgentCard:
    """Return a copy of a card whose interfaces have addresses below a base URL."""
    base = url.rstrip("/")
    addressed = AgentCard()
    addressed.CopyFrom(card)
    addressed.ClearField("supported_interfaces")
    for binding, address in (("HTTP+JSON", base), ("JSONRPC", f"{base}/")):
        addressed.supported_interfaces.append(
            AgentInterface(url=address, protocol_binding=binding, protocol_version=PROTOCOL_VERSION)
        )
    return addressed


def _describe(skill: Skill) -> AgentSkill:
    return AgentSkill(
        id=skill.id,
        name=skill.name,
        description=skill.description,
        tags=skill.tags,
        examples=skill.examples,
        input_modes=skill.input_modes,
        output_modes=skill.output_modes,
    )


def _declare(extension: Extension) -> AgentExtension:
    return AgentExtension(
        uri=extension.uri,
        description=extension.description,
        required=extension.required,
        params=None if extension.params is None else dict(extension.params),
    )


def _security_scheme() -> SecurityScheme:
    return SecurityScheme(
        http_auth_security_scheme=HTTPAuthSecurityScheme(
            scheme="Bearer", bearer_format="JWT", description="The request token of the service."
        )
    )


def _united(modes: Iterable[Iterable[str]]) -> list[str]:
    # Use a dict and not a set: a set has a random order, so the card would change with each start.
    return list(dict.fromkeys(mode for each in modes for mode in each))
