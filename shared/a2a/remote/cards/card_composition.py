"""Compose the public card of a deployment that answers elsewhere: its agent's words at our address.

The agent says who it is, what it can do and in which media types; we say how it is reached, by which credentials, and
what the service adds. Its signatures are dropped, for they are about its own card.
"""

from shared.a2a.agents.directory import Agent
from shared.a2a.turns.updates import BehaviorKind
from shared.a2a.types import AgentCard, AgentSkill


def compose_card(own: AgentCard, agent: Agent) -> AgentCard:
    """Put the remote agent's words into our card of it; the skills of our own behaviors stay beside its own."""
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
            "icon_url": remote.icon_url if _is_web_address(remote.icon_url) else None,
        }
    )


def _own_skills(own: AgentCard, agent: Agent) -> list[AgentSkill]:
    ids = {str(at.id) for at in agent.behaviors if at.kind is not BehaviorKind.REMOTE}
    return [skill for skill in own.skills if skill.id in ids]


def _is_web_address(address: str | None) -> bool:
    return address is not None and address.startswith("https://")
