"""Memberships: the users of an organization and their roles.

Users join by invitation (`invitations.py`); only operators add members directly. Only owners change owners. A change of
members never removes the last enabled owner; only an operator can, by disabling the user (`users.py`).
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, delete, exists, func, select, update
from sqlalchemy.dialects.postgresql import insert

from shared.db.database import Session
from shared.db.schema import columns_of
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor, authorize_administration, authorize_grant
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import MEMBERSHIP_ROLES, Role
from shared.identity.audit import record
from shared.identity.directory.users import find_or_insert_user
from shared.identity.errors import AlreadyExists, LastOwner
from shared.identity.lookups import get_one, require_organization
from shared.identity.tables import api_keys, memberships, organizations, role_bindings, users
from shared.pagination import Page, Position, ascending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """A user's membership in an organization, with the role."""

    organization_id: UUID
    user_id: UUID
    email: str
    role: Role
    created_at: datetime


def add_member(
    session: Session, *, actor: Actor, organization_id: UUID, email: str, role: Role
) -> Membership:
    """Make the user of an address a member without an invitation; create the user if the address is unknown.

    For operators. Raises PermissionDenied, ResourceNotFound, ValidationFailed, and AlreadyExists for a member.
    """
    authorize_administration(actor, Permission.INSTALLATION_OPERATE, organization_id)
    authorize_role(actor, role, organization_id)
    require_organization(session, organization_id)
    user_id = find_or_insert_user(session, email)
    insert_membership(session, organization_id=organization_id, user_id=user_id, role=role)
    _record(session, actor, "member.added", organization_id, user_id, role=role)
    return get_membership(session, organization_id, user_id)


def get_member(session: Session, *, actor: Actor, organization_id: UUID, user_id: UUID) -> Membership:
    """Return a membership. Raises PermissionDenied, ResourceNotFound."""
    authorize_administration(actor, Permission.ORGANIZATION_READ, organization_id)
    return get_membership(session, organization_id, user_id)


def list_members(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[Membership]:
    """Return a page of an organization's members, by ascending user id."""
    authorize_administration(actor, Permission.ORGANIZATION_READ, organization_id)
    statement = _MEMBERS.where(memberships.c.organization_id == organization_id)
    return paginate(session, statement, ascending(memberships.c.user_id), _membership, **page)


def change_member_role(
    session: Session, *, actor: Actor, organization_id: UUID, user_id: UUID, role: Role
) -> Membership:
    """Change a member's role. Raises LastOwner if no enabled owner would be left, and as `authorize_role`."""
    authorize_administration(actor, Permission.MEMBER_MANAGE, organization_id)
    authorize_role(actor, role, organization_id)
    current = _get_for_change(session, actor, organization_id, user_id)
    if current.role is role:
        return current
    if current.role is Role.WORKSPACE_OWNER:
        _require_another_owner(session, organization_id, user_id)
    session.execute(update(memberships).where(*_is(organization_id, user_id)).values(role=role))
    _record(session, actor, "member.role_changed", organization_id, user_id, role=role, previous=current.role)
    return get_membership(session, organization_id, user_id)


def remove_member(session: Session, *, actor: Actor, organization_id: UUID, user_id: UUID) -> None:
    """Delete a membership with the user's role bindings and bound keys there. Raises LastOwner for the last owner."""
    authorize_administration(actor, Permission.MEMBER_MANAGE, organization_id)
    current = _get_for_change(session, actor, organization_id, user_id)
    if current.role is Role.WORKSPACE_OWNER:
        _require_another_owner(session, organization_id, user_id)
    _drop_rights(session, organization_id, user_id)
    session.execute(delete(memberships).where(*_is(organization_id, user_id)))
    _record(session, actor, "member.removed", organization_id, user_id)


def insert_membership(session: Session, *, organization_id: UUID, user_id: UUID, role: Role) -> None:
    """Insert a membership and select its organization if it is the user's only one.

    The caller authorizes, and ensures that the user consented. Raises AlreadyExists for a member.
    """
    written = session.execute(
        insert(memberships)
        .values(organization_id=organization_id, user_id=user_id, role=role)
        .on_conflict_do_nothing()
    )
    if written.rowcount == 0:
        raise AlreadyExists("This user is a member already.")
    # With other memberships nothing is selected: the user's unbound keys must not start to charge another organization.
    others = exists().where(
        memberships.c.user_id == user_id, memberships.c.organization_id != organization_id
    )
    session.execute(
        update(users)
        .where(users.c.id == user_id, users.c.active_organization_id.is_(None), ~others)
        .values(active_organization_id=organization_id)
    )


def authorize_role(actor: Actor, role: Role, organization_id: UUID) -> None:
    """Check that a role can be a member's and that the actor may grant it.

    Raises ValidationFailed, GrantExceedsGranter.
    """
    if role not in MEMBERSHIP_ROLES:
        message = "must be Member, WorkspaceAdmin or WorkspaceOwner"
        raise invalid_field("role", message)
    authorize_grant(actor, role, organization_id)


def _get_for_change(session: Session, actor: Actor, organization_id: UUID, user_id: UUID) -> Membership:
    """Return a membership for a change. Raises ResourceNotFound; PermissionDenied if it takes an owner."""
    # Lock the organization, so that two owners cannot remove each other concurrently.
    session.execute(select(organizations.c.id).where(organizations.c.id == organization_id).with_for_update())
    current = get_membership(session, organization_id, user_id)
    if current.role is Role.WORKSPACE_OWNER:
        authorize_administration(actor, Permission.OWNER_MANAGE, organization_id)
    return current


def _require_another_owner(session: Session, organization_id: UUID, user_id: UUID) -> None:
    others = (
        select(func.count())
        .select_from(memberships)
        .join(users, users.c.id == memberships.c.user_id)
        .where(
            memberships.c.organization_id == organization_id,
            memberships.c.user_id != user_id,
            memberships.c.role == Role.WORKSPACE_OWNER,
            # A disabled owner cannot administer, so it does not count.
            users.c.disabled_at.is_(None),
        )
    )
    if not session.execute(others).scalar():
        raise LastOwner


def _drop_rights(session: Session, organization_id: UUID, user_id: UUID) -> None:
    session.execute(
        delete(role_bindings).where(
            role_bindings.c.organization_id == organization_id, role_bindings.c.subject_user_id == user_id
        )
    )
    # Revoked and not left to the missing membership: they must stay invalid if the user joins again.
    session.execute(
        update(api_keys)
        .where(api_keys.c.organization_id == organization_id, api_keys.c.user_id == user_id)
        .where(api_keys.c.revoked_at.is_(None))
        .values(revoked_at=func.now())
    )
    session.execute(
        update(users)
        .where(users.c.id == user_id, users.c.active_organization_id == organization_id)
        .values(active_organization_id=None)
    )


def get_membership(session: Session, organization_id: UUID, user_id: UUID) -> Membership:
    """Return a membership. The caller authorizes. Raises ResourceNotFound."""
    return get_one(session, _MEMBERS.where(*_is(organization_id, user_id)), _membership)


def _is(organization_id: UUID, user_id: UUID) -> tuple[Any, Any]:
    return memberships.c.organization_id == organization_id, memberships.c.user_id == user_id


def _record(
    session: Session, actor: Actor, action: str, organization_id: UUID, user_id: UUID, **details: Any
) -> None:
    record(session, actor, action, user_id, organization_id=organization_id, **details)


def _membership(row: Row[Any]) -> Membership:
    return Membership(**{**row._asdict(), "role": Role(row.role)})


_MEMBERS = select(*columns_of(Membership, memberships, users)).join(
    users, users.c.id == memberships.c.user_id
)
