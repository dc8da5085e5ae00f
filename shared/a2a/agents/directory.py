"""Agents: deployments as A2A clients see them, with their behaviors, and the checks of access to agents.

A caller needs `model.execute` in the agent's organization, because the organization pays for the models of its agents.
Cards are public, so access to another organization's agent is denied and not reported as not found. A caller sees its
own tasks. With `TaskRead`, administrators read all tasks of a deployment, and a deployment reads all of its own tasks.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias
from uuid import UUID

from sqlalchemy import Row, select, text

from shared.a2a.agents.card_documents import CardUnusable, read_document
from shared.a2a.endpoint_tables import deployment_endpoints
from shared.a2a.errors import AgentNotFound, InvalidParams, UnsupportedOperation
from shared.a2a.tables import behaviors
from shared.a2a.types import AgentCard
from shared.a2a.updates import BehaviorKind, BehaviorSettings, DeclaredExtension
from shared.credits.authorization import require_billing_organization
from shared.db.database import Session
from shared.errors import FieldError, PermissionDenied
from shared.identity.access.callers import Caller, ExecutorKind
from shared.identity.access.permissions import Permission
from shared.identity.tables import deployments, identities, organizations, versions

LISTED_DISTRIBUTIONS = 100
"""How many of an agent's newest distributions are read for the networks on its card."""
SKILL_KEY = "skillId"
"""Key in a message's metadata by which a client chooses a skill, that is a behavior, by its id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An enabled deployment. `behaviors` begins with the default behavior, and may be empty."""

    deployment_id: UUID
    organization_id: UUID
    organization_name: str
    name: str
    version: str
    behaviors: tuple[BehaviorSettings, ...]
    networks: tuple[str, ...]
    changed_at: datetime
    """When the agent was last changed. A deletion does not change it."""
    remote_card: AgentCard | None = None
    """The card of the deployment's own server, if that answers by default."""

    def choose_behavior(self, skill_id: object) -> BehaviorSettings:
        """Return the behavior that a message asks for, or the default. Raises InvalidParams, UnsupportedOperation."""
        if not self.behaviors:
            raise UnsupportedOperation("This agent has no behavior yet; its administrator can give it one.")
        if skill_id is None:
            return self.behaviors[0]
        for behavior in self.behaviors:
            # Accept the name too, because clients see the name on the card.
            if skill_id in (str(behavior.id), behavior.name):
                return behavior
        if self.behaviors[0].kind is BehaviorKind.REMOTE:
            return self.behaviors[0]  # it has its own skills and refuses unknown ones itself
        message = "is not a skill of this agent"
        field = FieldError(location="body", name=f"message.metadata.{SKILL_KEY}", message=message)
        raise InvalidParams(errors=[field])


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The tasks of one caller with one agent, on behalf of one principal."""

    caller_id: UUID
    principal_id: UUID
    deployment_id: UUID


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentScope:
    """All tasks of a deployment, for readers with `TaskRead`. This scope allows no changes."""

    deployment_id: UUID


Readable: TypeAlias = Scope | DeploymentScope


def get_agent(session: Session, deployment_id: UUID) -> Agent:
    """Return an agent. Raises AgentNotFound if it does not exist or is disabled."""
    row = session.execute(_AGENT.where(deployments.c.id == deployment_id)).one_or_none()
    if row is None:
        raise AgentNotFound
    held = list_agent_behaviors(session, deployment_id)
    routed = session.execute(_ROUTED, {"deployment_id": deployment_id, "limit": LISTED_DISTRIBUTIONS}).all()
    changes = [row.created_at, row.version_created_at, *(behavior.updated_at for behavior in held)]
    changes += [found.created_at for found in routed]
    return Agent(
        deployment_id=row.id,
        organization_id=row.organization_id,
        organization_name=row.organization_name,
        name=row.name,
        # A deployment without a version counts as version 1.
        version=row.label or str(row.number or 1),
        behaviors=held,
        networks=tuple(sorted({name for found in routed for name in found.networks})),
        changed_at=max(at for at in changes if at is not None),
        remote_card=_find_remote_card(session, deployment_id, held),
    )


def _find_remote_card(
    session: Session, deployment_id: UUID, held: Sequence[BehaviorSettings]
) -> AgentCard | None:
    if not held or held[0].kind is not BehaviorKind.REMOTE:
        return None
    kept = select(deployment_endpoints.c.card).where(deployment_endpoints.c.deployment_id == deployment_id)
    document = session.execute(kept).scalar()
    try:
        return read_document(document).card if document is not None else None
    except CardUnusable:
        return None  # stored by a release with other rules; the next refresh replaces it


def get_default_agent_id(session: Session, configured: UUID | None) -> UUID:
    """Return the deployment at the root address: `configured`, or the oldest deployment. Raises AgentNotFound."""
    if configured is not None:
        return configured
    oldest = select(deployments.c.id).where(deployments.c.disabled_at.is_(None)).order_by(deployments.c.id)
    found: UUID | None = session.execute(oldest.limit(1)).scalar()
    if found is None:
        raise AgentNotFound
    return found


def authorize(caller: Caller, agent: Agent) -> Scope:
    """Check that a caller may use an agent, and return the scope of the caller's tasks.

    Raises BillingOrganizationRequired, PermissionDenied.
    """
    if require_billing_organization(caller) != agent.organization_id:
        raise PermissionDenied("This agent belongs to another organization than the one you act in.")
    require_execution(caller, agent.organization_id)
    return own_scope(caller, agent.deployment_id)


def own_scope(caller: Caller, deployment_id: UUID) -> Scope:
    """Return the scope of the tasks that a caller has with a deployment."""
    return Scope(
        caller_id=caller.executor.id,
        principal_id=caller.owner.id if caller.owner is not None else caller.executor.id,
        deployment_id=deployment_id,
    )


def require_execution(caller: Caller, organization_id: UUID) -> None:
    """Raise PermissionDenied if the caller may not use the agents of an organization."""
    if Permission.MODEL_EXECUTE not in caller.permissions_on(organization_id=organization_id):
        raise caller.lacks(Permission.MODEL_EXECUTE)


def authorize_reading(caller: Caller, agent: Agent) -> Readable:
    """Return the tasks of an agent that a caller may read.

    Raises BillingOrganizationRequired, PermissionDenied.
    """
    own = authorize(caller, agent)
    return DeploymentScope(deployment_id=agent.deployment_id) if _reads_all(caller, agent) else own


def require_reading(caller: Caller, agent: Agent, held: Readable) -> None:
    """Raise PermissionDenied if a caller has lost the permission to read a deployment's tasks."""
    if authorize_reading(caller, agent) != held and isinstance(held, DeploymentScope):
        raise caller.lacks(Permission.TASK_READ)


def _reads_all(caller: Caller, agent: Agent) -> bool:
    """Return whether the caller may read all tasks of the agent by `TaskRead`.

    Users with `TaskRead` may. The deployment may unless it acts on behalf of a receiving identity.
    """
    if Permission.TASK_READ not in caller.permissions_on(organization_id=agent.organization_id):
        return False
    if caller.executor.kind is ExecutorKind.USER:
        return True
    # On behalf of a receiving identity a deployment reads that identity's tasks only.
    return caller.deployment_id == agent.deployment_id and caller.transaction_id is None


def list_agent_behaviors(session: Session, deployment_id: UUID) -> tuple[BehaviorSettings, ...]:
    """Return the behaviors of a deployment, its default first."""
    statement = select(behaviors).where(behaviors.c.deployment_id == deployment_id)
    rows = session.execute(statement.order_by(behaviors.c.is_default.desc(), behaviors.c.id))
    return tuple(behavior_settings(row) for row in rows)


def find_behavior(session: Session, behavior_id: UUID) -> BehaviorSettings | None:
    """Return a behavior, or None."""
    row = session.execute(select(behaviors).where(behaviors.c.id == behavior_id)).one_or_none()
    return behavior_settings(row) if row is not None else None


def behavior_settings(row: Row[Any]) -> BehaviorSettings:
    """Return the behavior of a row of `behaviors`."""
    return read_behavior(row, row.id, row.extensions)


def read_behavior(row: Any, behavior_id: UUID, extensions: Sequence[dict[str, Any]]) -> BehaviorSettings:
    """Return a behavior from a row that joins several tables."""
    return BehaviorSettings(
        id=behavior_id,
        deployment_id=row.deployment_id,
        name=row.name,
        kind=BehaviorKind(row.kind),
        description=row.description,
        model=row.model,
        instructions=row.instructions,
        script=row.script,
        extensions=_extensions(extensions),
        tags=tuple(row.tags),
        examples=tuple(row.examples),
        input_modes=tuple(row.input_modes),
        output_modes=tuple(row.output_modes),
        is_default=row.is_default,
        updated_at=row.updated_at,
    )


def _extensions(stored: Sequence[dict[str, Any]]) -> tuple[DeclaredExtension, ...]:
    return tuple(
        DeclaredExtension(**declared | {"requires": tuple(declared.get("requires", ()))})
        for declared in stored
    )


ROUTED = """
SELECT networks, created_at FROM distributions WHERE deployment_id = :deployment_id AND disabled_at IS NULL
ORDER BY id DESC LIMIT :limit
"""
_ROUTED = text(ROUTED)
_AGENT = (
    select(
        deployments.c.id,
        deployments.c.organization_id,
        deployments.c.name,
        deployments.c.created_at,
        organizations.c.name.label("organization_name"),
        versions.c.number,
        versions.c.label,
        versions.c.created_at.label("version_created_at"),
    )
    .join(organizations, organizations.c.id == deployments.c.organization_id)
    .join(identities, identities.c.id == deployments.c.daemon_identity_id)
    .outerjoin(versions, versions.c.id == deployments.c.active_version_id)
    .where(deployments.c.disabled_at.is_(None), identities.c.disabled_at.is_(None))
)
