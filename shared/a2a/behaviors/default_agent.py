"""Configure the default agent: a model at the first start, and the script of `A2A_SCRIPT` while that is set.

This runs at every start of a process. It changes no behavior of an administrator: the script is the default behavior
only while `A2A_SCRIPT` is set.
"""

from collections.abc import Sequence
from uuid import UUID

from shared.a2a.agents.directory import get_default_agent_id, list_agent_behaviors
from shared.a2a.behaviors.administration import (
    BehaviorDraft,
    create_behavior,
    make_default_behavior,
    remove_behavior,
)
from shared.a2a.errors import AgentNotFound
from shared.a2a.updates import BehaviorKind, BehaviorSettings
from shared.config.settings import Settings
from shared.db.advisory_locks import AdvisoryLock, take
from shared.db.database import Session
from shared.identity.access.authorization import OPERATOR
from shared.models.catalog_file import CatalogFile

ASSISTANT = "Assistant"
SCRIPT = "Script"
_INSTRUCTIONS = "You are a helpful assistant. Answer briefly and say when you do not know."


def equip_default_agent(session: Session, settings: Settings) -> None:
    """Create a behavior if the default agent has none, and add or remove the script according to `A2A_SCRIPT`."""
    # Several processes may start at the same time: the lock prevents that each creates the behavior.
    take(session, AdvisoryLock.DEFAULT_AGENT)
    try:
        deployment_id = get_default_agent_id(session, settings.default_agent)
    except AgentNotFound:
        return
    held = list_agent_behaviors(session, deployment_id)
    if not held:
        model = _first_model(settings)
        if model is not None:
            held = (
                create_behavior(
                    session, actor=OPERATOR, deployment_id=deployment_id, draft=_assistant(model)
                ),
            )
    _follow_setting(session, deployment_id, held, is_scripted=settings.a2a_script is not None)


def _follow_setting(
    session: Session, deployment_id: UUID, held: Sequence[BehaviorSettings], *, is_scripted: bool
) -> None:
    script = next((at for at in held if at.kind is BehaviorKind.SCRIPT and at.script is None), None)
    others = [behavior for behavior in held if behavior is not script]
    if is_scripted and script is None:
        create_behavior(
            session, actor=OPERATOR, deployment_id=deployment_id, draft=_scripted(), is_default=True
        )
    elif is_scripted and script is not None and not script.is_default:
        make_default_behavior(session, actor=OPERATOR, behavior_id=script.id)
    # A script that is the only behavior stays, because an agent needs a behavior.
    elif script is not None and not is_scripted and others:
        if script.is_default:
            make_default_behavior(session, actor=OPERATOR, behavior_id=others[0].id)
        remove_behavior(session, actor=OPERATOR, behavior_id=script.id)


def _first_model(settings: Settings) -> str | None:
    entries = CatalogFile(settings.models_config).current().entries
    return next((entry.id for entry in entries if entry.produces_text), None)


def _assistant(model: str) -> BehaviorDraft:
    return BehaviorDraft(
        name=ASSISTANT,
        kind=BehaviorKind.MODEL,
        description="Answers questions and writes texts.",
        model=model,
        instructions=_INSTRUCTIONS,
        tags=("chat",),
        examples=("What can you do?",),
    )


def _scripted() -> BehaviorDraft:
    return BehaviorDraft(
        name=SCRIPT,
        kind=BehaviorKind.SCRIPT,
        description="Follows the script of this installation.",
        tags=("script",),
        input_modes=("*/*",),
        output_modes=("*/*",),
    )
