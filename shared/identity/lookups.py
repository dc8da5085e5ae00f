"""Check that the resources that a request names exist in its organization.

Functions `get_…` and `require_…` raise ResourceNotFound.

A missing resource and a resource of another organization cause the same error, so that a caller cannot probe ids of
other tenants.
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
    """Return the selected row, converted by `make`. Raises ResourceNotFound if no row was selected."""
    row = session.execute(statement).one_or_none()
    if row is None:
        raise ResourceNotFound
    return make(row)


def require_organization(session: Session, organization_id: UUID) -> None:
    """Raise ResourceNotFound unless an organization exists; operators may name one they do not belong to."""
    found = select(organizations.c.id).where(organizations.c.id == organization_id)
    if session.execute(found).one_or_none() is None:
        raise ResourceNotFound("There is no such organization.")


def require_identity(session: Session, organization_id: UUID, identity_id: UUID) -> None:
    """Raise ResourceNotFound unless an identity of either kind exists in the organization."""
    found = select(identities.c.id).where(
        identities.c.id == identity_id, identities.c.organization_id == organization_id
    )
    if session.execute(found).one_or_none() is None:
        raise ResourceNotFound("There is no such identity in this organization.")


def require_principal(session: Session, organization_id: UUID, identity_id: UUID) -> None:
    """Raise ResourceNotFound unless a Principal Identity exists in the organization."""
    found = select(identities.c.id).where(
        identities.c.id == identity_id,
        identities.c.organization_id == organization_id,
        identities.c.kind == OwnerKind.PRINCIPAL_IDENTITY,
    )
    if session.execute(found).one_or_none() is None:
        raise ResourceNotFound("There is no such Principal Identity in this organization.")


def require_deployment(session: Session, organization_id: UUID, deployment_id: UUID) -> None:
    """Raise ResourceNotFound unless a deployment exists in the organization."""
    found = select(deployments.c.id).where(
        deployments.c.id == deployment_id, deployments.c.organization_id == organization_id
    )
    if session.execute(found).one_or_none() is None:
        raise ResourceNotFound("There is no such deployment in this organization.")


def find_distribution_organization(session: Session, distribution_id: UUID) -> UUID | None:
    """Return the organization of a distribution, which never changes, or None if the distribution does not exist."""
    found = select(distributions.c.organization_id).where(distributions.c.id == distribution_id)
    return session.execute(found).scalar_one_or_none()


def require_member(session: Session, organization_id: UUID, user_id: UUID) -> Row[Any]:
    """Return a membership's row with its `role`, locked. Raises ResourceNotFound if the user is no member."""
    # Take a shared lock: a concurrent removal then waits, and also removes the rights that this transaction grants.
    found = select(memberships.c.role).where(
        memberships.c.user_id == user_id, memberships.c.organization_id == organization_id
    )
    row = session.execute(found.with_for_update(read=True)).one_or_none()
    if row is None:
        raise ResourceNotFound("There is no such member in this organization.")
    return row
