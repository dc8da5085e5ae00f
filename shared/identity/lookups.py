"""Find what a request names, in its organization; `get_` and `require_` raise ResourceNotFound.

"Absent" and "another organization's" get one answer, so that nobody learns what others have.
"""

from collections.abc import Callable
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import Row, Select, select

from shared.db.database import Session
from shared.identity.access.callers import OwnerKind
from shared.identity.errors import ResourceNotFound
from shared.identity.tables import deployments, distributions, identities, memberships, organizations

T = TypeVar("T")


def get_one(session: Session, statement: Select[Any], make: Callable[[Row[Any]], T]) -> T:
    """Get what `make` makes of the row that a select finds. Raises ResourceNotFound."""
    row = session.execute(statement).one_or_none()
    if row is None:
        raise ResourceNotFound
    return make(row)


def require_organization(session: Session, organization_id: UUID) -> None:
    """Check an organization, which an operator may name without belonging to it."""
    found = select(organizations.c.id).where(organizations.c.id == organization_id)
    if session.execute(found).one_or_none() is None:
        raise ResourceNotFound("There is no such organization.")


def require_identity(session: Session, organization_id: UUID, identity_id: UUID) -> None:
    """Check an identity of either kind."""
    found = select(identities.c.id).where(
        identities.c.id == identity_id, identities.c.organization_id == organization_id
    )
    if session.execute(found).one_or_none() is None:
        raise ResourceNotFound("There is no such identity in this organization.")


def require_principal(session: Session, organization_id: UUID, identity_id: UUID) -> None:
    """Check a Principal Identity."""
    found = select(identities.c.id).where(
        identities.c.id == identity_id,
        identities.c.organization_id == organization_id,
        identities.c.kind == OwnerKind.PRINCIPAL_IDENTITY,
    )
    if session.execute(found).one_or_none() is None:
        raise ResourceNotFound("There is no such Principal Identity in this organization.")


def require_deployment(session: Session, organization_id: UUID, deployment_id: UUID) -> None:
    """Check a deployment."""
    found = select(deployments.c.id).where(
        deployments.c.id == deployment_id, deployments.c.organization_id == organization_id
    )
    if session.execute(found).one_or_none() is None:
        raise ResourceNotFound("There is no such deployment in this organization.")


def find_distribution_organization(session: Session, distribution_id: UUID) -> UUID | None:
    """Find the organization of a distribution, which never changes; None when there is no such distribution."""
    found = select(distributions.c.organization_id).where(distributions.c.id == distribution_id)
    return session.execute(found).scalar_one_or_none()


def require_member(session: Session, organization_id: UUID, user_id: UUID) -> Row[Any]:
    """Check a member, give the membership's `role`, and hold it, so that a leaver is given nothing meanwhile."""
    found = select(memberships.c.role).where(
        memberships.c.user_id == user_id, memberships.c.organization_id == organization_id
    )
    row = session.execute(found.with_for_update(read=True)).one_or_none()
    if row is None:
        raise ResourceNotFound("There is no such member in this organization.")
    return row
