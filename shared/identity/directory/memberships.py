"""Memberships: the users of an organization and their roles.

Users join by invitation (`invitations.py`); only operators add members directly. Only owners and operators may add,
change or remove owners. A change of members never removes the last enabled owner. Only an operator can leave an
organization without an enabled owner, by disabling the user (`users.py`).
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
    """Make the user with an address a member without an invitation. If no user has the address, create one.

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
    """Change a member's role.

    Raises LastOwner if no enabled owner would be left, and the errors of `authorize_role`.
    """
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
    """Delete a membership and the user's role bindings in the organization, and revoke the keys bound to it.

    Raises LastOwner if no enabled owner would be left.
    """
    authorize_administration(actor, Permission.MEMBER_MANAGE, organization_id)
    current = _get_for_change(session, actor, organization_id, user_id)
    if current.role is Role.WORKSPACE_OWNER:
        _require_another_owner(session, organization_id, user_id)
    _drop_rights(session, organization_id, user_id)
    session.execute(delete(memberships).where(*_is(organization_id, user_id)))
    _record(session, actor, "member.removed", organization_id, user_id)


def insert_membership(session: Session, *, organization_id: UUID, user_id: UUID, role: Role) -> None:
    """Insert a membership. If it is the user's only one, select its organization as the active one.

    The caller authorizes, and ensures that the user consented. Raises AlreadyExists for a member.
    """
    written = session.execute(
        insert(memberships)
        .values(organization_id=organization_id, user_id=user_id, role=role)
        .on_conflict_do_nothing()
    )
    if written.rowcount == 0:
        raise AlreadyExists("This user is a member already.")
    # Select nothing if the user has other memberships: the user's unbound keys must not start to charge another
    # organization.
    others = exists().where(
        memberships.c.user_id == user_id, memberships.c.organization_id != organization_id
    )
    session.execute(
        update(users)
        .where(users.c.id == user_id, users.c.active_organization_id.is_(None), ~others)
        .values(active_organization_id=organization_id)
    )


def authorize_role(actor: Actor, role: Role, organization_id: UUID) -> None:
    """Check that members can have a role, and that the actor may grant this role.

    Raises ValidationFailed, GrantExceedsGranter.
    """
    if role not in MEMBERSHIP_ROLES:
        message = "must be Member, WorkspaceAdmin or WorkspaceOwner"
        raise invalid_field("role", message)
    authorize_grant(actor, role, organization_id)


def _get_for_change(session: Session, actor: Actor, organization_id: UUID, user_id: UUID) -> Membership:
    """Return a membership that is to be changed, and lock its organization.

    Raises ResourceNotFound, and PermissionDenied if the member is an owner and the actor may not manage owners.
    """
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
            # Do not count a disabled owner, who cannot administer.
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
    # Revoke the bound keys, although they are invalid without the membership: they must stay invalid if the user
    # joins again.
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
