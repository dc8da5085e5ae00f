"""Agent cards: the public one, and the extended one for callers that may talk to the agent.

The skills of a card are the agent's behaviors, or the skills of the remote server that answers for the agent. A card is
built from rows at each request. A remote agent's own card defines the name, the skills and the media types. This
service adds its own address, credentials and extensions. The signatures of the remote card are dropped, because they do
not cover the changed card.
"""

from collections.abc import Sequence

from shared.a2a.agents.directory import Agent
from shared.a2a.errors import ExtendedAgentCardNotConfigured
from shared.a2a.media_types import modes_of
from shared.a2a.types import (
    AgentCapabilities,
    AgentCard,
    AgentExtension,
    AgentInterface,
    AgentProvider,
    AgentSkill,
)
from shared.a2a.updates import BehaviorKind, BehaviorSettings, DeclaredExtension

PROTOCOL_VERSION = "1.0"
BINDINGS = ("HTTP+JSON", "JSONRPC")
"""Both at the same address."""


def make_card(
    agent: Agent, declared: Sequence[DeclaredExtension], *, url: str, base_url: str, pushes: bool
) -> AgentCard:
    """Return the public card of an agent with the address `url`."""
    own = AgentCard(
        name=agent.name,
        description=_description(agent),
        supported_interfaces=tuple(
            AgentInterface(url=url, protocol_binding=binding, protocol_version=PROTOCOL_VERSION)
            for binding in BINDINGS
        ),
        provider=AgentProvider(url=base_url, organization=agent.organization_name),
        version=agent.version,
        documentation_url=f"{base_url}/docs",
        capabilities=AgentCapabilities(
            streaming=True,
            push_notifications=pushes,
            extended_agent_card=True,
            extensions=tuple(_extension(extension) for extension in declared),
        ),
        security_schemes=_schemes(base_url),
        security_requirements=tuple({"schemes": {name: {"list": []}}} for name in _schemes(base_url)),
        default_input_modes=_modes(agent, "input_modes"),
        default_output_modes=_modes(agent, "output_modes"),
        skills=tuple(_skill(behavior) for behavior in agent.behaviors),
    )
    return compose_card(own, agent)


def extend_card(card: AgentCard, agent: Agent) -> AgentCard:
    """Return the extended card. It adds to each skill the details that only callers of the agent may read.

    Raises ExtendedAgentCardNotConfigured if the agent has no behavior.
    """
    if not agent.behaviors:
        raise ExtendedAgentCardNotConfigured
    own = {str(behavior.id): behavior for behavior in agent.behaviors}
    skills = tuple(_extended(skill, own.get(skill.id)) for skill in card.skills)
    return card.model_copy(update={"skills": skills})


def _description(agent: Agent) -> str:
    return agent.behaviors[0].description if agent.behaviors else f"{agent.name} has no behavior yet."


def _modes(agent: Agent, which: str) -> tuple[str, ...]:
    return modes_of(getattr(agent.behaviors[0], which) if agent.behaviors else ())


def _skill(behavior: BehaviorSettings) -> AgentSkill:
    return AgentSkill(
        id=str(behavior.id),
        name=behavior.name,
        description=behavior.description,
        # The protocol requires at least one tag.
        tags=behavior.tags or (behavior.kind.value,),
        examples=behavior.examples,
        input_modes=behavior.input_modes,
        output_modes=behavior.output_modes,
    )


def _extended(skill: AgentSkill, behavior: BehaviorSettings | None) -> AgentSkill:
    if behavior is not None and behavior.kind is BehaviorKind.MODEL:
        works_with = behavior.model
    else:
        is_script = behavior is not None and behavior.kind is BehaviorKind.SCRIPT
        works_with = "a script" if is_script else "a server of its own"
    return skill.model_copy(update={"description": f"{skill.description} (Works with {works_with}.)"})


def _extension(extension: DeclaredExtension) -> AgentExtension:
    return AgentExtension(
        uri=extension.uri,
        description=_described(extension),
        required=extension.required or None,
        params=dict(extension.params) if extension.params is not None else None,
    )


def _described(extension: DeclaredExtension) -> str | None:
    """Return an extension's description, with the extensions that it requires."""
    needed = f"Needs {', '.join(extension.requires)}." if extension.requires else None
    return " ".join(filter(None, (extension.description, needed))) or None


def _schemes(base_url: str) -> dict[str, dict[str, object]]:
    token_url = f"{base_url}/oauth/token"
    flow = {"clientCredentials": {"tokenUrl": token_url, "scopes": {}}}
    return {
        "apiKey": {
            "httpAuthSecurityScheme": {
                "description": "A user's API key.",
                "scheme": "Bearer",
                "bearerFormat": "opaque",
            }
        },
        "accessToken": {
            "oauth2SecurityScheme": {
                "description": "A deployment's Version access token.",
                "flows": flow,
                "oauth2MetadataUrl": f"{base_url}/.well-known/oauth-authorization-server",
            }
        },
    }


def compose_card(own: AgentCard, agent: Agent) -> AgentCard:
    """Return our card of an agent with the fields of the remote card. Skills of our own behaviors are kept."""
    remote = agent.remote_card
    if remote is None:
        return own
    return own.model_copy(
        update={
            "name": remote.name,
            "description": remote.description,
            "version": remote.version,
            "default_input_modes": remote.default_input_modes or own.default_input_modes,
            "default_output_modes": remote.default_output_modes or own.default_output_modes,
            "skills": (*remote.skills, *_own_skills(own, agent)),
            # Drop other addresses, because browsers that show our console would load a plain-HTTP or script address.
            "icon_url": remote.icon_url if _is_web_address(remote.icon_url) else None,
        }
    )


def _own_skills(own: AgentCard, agent: Agent) -> list[AgentSkill]:
    # Leave out the remote behavior, because the skills of the remote card describe it.
    ids = {str(at.id) for at in agent.behaviors if at.kind is not BehaviorKind.REMOTE}
    return [skill for skill in own.skills if skill.id in ids]


def _is_web_address(address: str | None) -> bool:
    return address is not None and address.startswith("https://")
