"""List the agents of an organization: its enabled deployments, which callers may talk to."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, select, true

from shared.a2a.agents.directory import require_execution
from shared.credits.authorization import require_billing_organization
from shared.db.database import Session
from shared.identity.access.callers import Caller
from shared.identity.tables import deployments, identities
from shared.pagination import Page, Position, ascending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedAgent:
    """An agent in a list. The agent's card has the details."""

    id: UUID
    name: str
    created_at: datetime


def list_agents(session: Session, caller: Caller, **page: Unpack[Position]) -> Page[ListedAgent]:
    """Return a page of the agents that a caller may talk to.

    Raises BillingOrganizationRequired, PermissionDenied.
    """
    organization_id = require_billing_organization(caller)
    require_execution(caller, organization_id)
    statement = _ENABLED.where(deployments.c.organization_id == organization_id)
    return paginate(session, statement, ascending(deployments.c.id), _listed, **page)


def _listed(row: Row[Any]) -> ListedAgent:
    return ListedAgent(id=row.id, name=row.name, created_at=row.created_at)


# Use a scalar subquery: for a join, the planner may read all identities for one page.
_DAEMON_IS_DISABLED = (
    select(identities.c.disabled_at.is_not(None))
    .where(identities.c.id == deployments.c.daemon_identity_id)
    .scalar_subquery()
)
_ENABLED = select(deployments.c.id, deployments.c.name, deployments.c.created_at).where(
    deployments.c.disabled_at.is_(None), _DAEMON_IS_DISABLED.is_not(true())
)
