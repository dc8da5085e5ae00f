"""Organizations: the tenants, which are charged and contain all other resources.

Only operators create, suspend and resume them.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, exists, insert, select

from shared.db.database import Session
from shared.identity.access.authorization import Actor, authorize_administration, authorize_operation
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import Role
from shared.identity.audit import record
from shared.identity.conditional_updates import mark_disabled, mark_enabled, set_values
from shared.identity.directory.memberships import insert_membership
from shared.identity.directory.users import get_user
from shared.identity.field_validation import require_name
from shared.identity.lookups import get_one
from shared.identity.tables import memberships, organizations
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class Organization:
    """An organization. While `suspended_at` is set, all calls that act in it or are charged to it are refused."""

    id: UUID
    name: str
    suspended_at: datetime | None
    created_at: datetime


def create_organization(session: Session, *, actor: Actor, name: str, owner_id: UUID) -> Organization:
    """Create an organization and its first owner's membership.

    Raises PermissionDenied, and ResourceNotFound if the owner does not exist.
    """
    authorize_operation(actor)
    # Check the owner before the insert, so that the error is not_found and not a broken foreign key.
    get_user(session, actor=actor, user_id=owner_id)
    row = session.execute(
        insert(organizations).values(id=new_id(), name=require_name(name)).returning(organizations)
    ).one()
    insert_membership(session, organization_id=row.id, user_id=owner_id, role=Role.WORKSPACE_OWNER)
    _record(session, actor, "organization.created", row.id, owner_id=owner_id)
    return _organization(row)


def get_organization(session: Session, *, actor: Actor, organization_id: UUID) -> Organization:
    """Return an organization. Raises PermissionDenied, ResourceNotFound."""
    authorize_administration(actor, Permission.ORGANIZATION_READ, organization_id)
    return get_one(session, select(organizations).where(organizations.c.id == organization_id), _organization)


def list_organizations(session: Session, *, actor: Actor, **page: Unpack[Position]) -> Page[Organization]:
    """Return a page of the organizations of which the actor is a member; an operator gets all organizations.

    A bound key lists only the organization of its binding.
    """
    statement = select(organizations)
    if not actor.caller.is_operator:
        # Use a semi-join: the keyset pagination needs each organization only once, ordered by id.
        mine = memberships.c.user_id == actor.user_id
        statement = statement.where(exists().where(mine, memberships.c.organization_id == organizations.c.id))
    if actor.caller.bound_organization_id is not None:
        statement = statement.where(organizations.c.id == actor.caller.bound_organization_id)
    return paginate(session, statement, ascending(organizations.c.id), _organization, **page)


def rename_organization(session: Session, *, actor: Actor, organization_id: UUID, name: str) -> Organization:
    """Rename an organization."""
    authorize_administration(actor, Permission.ORGANIZATION_MANAGE, organization_id)
    if set_values(session, organizations, organization_id, {"name": require_name(name)}):
        _record(session, actor, "organization.renamed", organization_id)
    return get_organization(session, actor=actor, organization_id=organization_id)


def suspend_organization(session: Session, *, actor: Actor, organization_id: UUID) -> Organization:
    """Suspend an organization. Calls that act in it or are charged to it are refused until an operator resumes it."""
    authorize_operation(actor)
    if mark_disabled(session, organizations, organizations.c.suspended_at, organization_id):
        _record(session, actor, "organization.suspended", organization_id)
    return get_organization(session, actor=actor, organization_id=organization_id)


def resume_organization(session: Session, *, actor: Actor, organization_id: UUID) -> Organization:
    """Resume a suspended organization."""
    authorize_operation(actor)
    if mark_enabled(session, organizations, organizations.c.suspended_at, organization_id):
        _record(session, actor, "organization.resumed", organization_id)
    return get_organization(session, actor=actor, organization_id=organization_id)


def _record(session: Session, actor: Actor, action: str, organization_id: UUID, **details: Any) -> None:
    record(session, actor, action, organization_id, organization_id=organization_id, **details)


def _organization(row: Row[Any]) -> Organization:
    return Organization(**row._asdict())
