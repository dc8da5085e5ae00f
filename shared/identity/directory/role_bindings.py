"""Bind roles to identities, over an organization or one owner identity, and to users over one owner identity.

An actor binds and unbinds a role only if it holds all permissions of the role, and no binding crosses
organizations. Only the membership decides a user's role over a whole organization.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, delete, select
from sqlalchemy.dialects.postgresql import insert

from shared.db.database import Session
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor, authorize_administration, authorize_grant
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import Role, ScopeKind
from shared.identity.audit import record
from shared.identity.errors import AlreadyExists
from shared.identity.lookups import get_one, require_identity, require_member
from shared.identity.tables import role_bindings
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleBinding:
    """A role that an identity or a user holds in one scope."""

    id: UUID
    organization_id: UUID
    subject_identity_id: UUID | None
    subject_user_id: UUID | None
    role: Role
    scope_kind: ScopeKind
    scope_id: UUID
    created_at: datetime


def bind_identity_role(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    identity_id: UUID,
    role: Role,
    scope_kind: ScopeKind,
    scope_id: UUID,
) -> RoleBinding:
    """Bind a role to an identity, over its organization or over one owner identity in it.

    Raises PermissionDenied, GrantExceedsGranter, ResourceNotFound, ValidationFailed, AlreadyExists.
    """
    _authorize(actor, organization_id, role)
    require_identity(session, organization_id, identity_id)
    _require_scope(session, organization_id, scope_kind, scope_id)
    binding = insert_role_binding(
        session,
        organization_id=organization_id,
        subject_identity_id=identity_id,
        role=role,
        scope_kind=scope_kind,
        scope_id=scope_id,
    )
    _record(session, actor, "role.bound", binding)
    return binding


def bind_user_role(
    session: Session, *, actor: Actor, organization_id: UUID, user_id: UUID, role: Role, owner_id: UUID
) -> RoleBinding:
    """Bind a role to a member, over one owner identity of the organization.

    Raises PermissionDenied, GrantExceedsGranter, ResourceNotFound, AlreadyExists.
    """
    _authorize(actor, organization_id, role)
    require_member(session, organization_id, user_id)
    require_identity(session, organization_id, owner_id)
    binding = insert_role_binding(
        session,
        organization_id=organization_id,
        subject_user_id=user_id,
        role=role,
        scope_kind=ScopeKind.IDENTITY,
        scope_id=owner_id,
    )
    _record(session, actor, "role.bound", binding)
    return binding


def get_role_binding(session: Session, *, actor: Actor, binding_id: UUID) -> RoleBinding:
    """Return a role binding. Raises ResourceNotFound, PermissionDenied."""
    binding = _get(session, binding_id)
    authorize_administration(actor, Permission.ORGANIZATION_READ, binding.organization_id)
    return binding


def list_role_bindings(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[RoleBinding]:
    """Return a page of an organization's role bindings, oldest first."""
    authorize_administration(actor, Permission.ORGANIZATION_READ, organization_id)
    statement = select(role_bindings).where(role_bindings.c.organization_id == organization_id)
    return paginate(session, statement, ascending(role_bindings.c.id), _binding, **page)


def unbind_role(session: Session, *, actor: Actor, binding_id: UUID) -> None:
    """Delete a role binding. Raises ResourceNotFound if there is none, PermissionDenied, GrantExceedsGranter."""
    # Lock the binding, so that of two concurrent deletes only one records an audit event.
    held = select(role_bindings).where(role_bindings.c.id == binding_id).with_for_update()
    binding = get_one(session, held, _binding)
    _authorize(actor, binding.organization_id, binding.role)
    session.execute(delete(role_bindings).where(role_bindings.c.id == binding_id))
    _record(session, actor, "role.unbound", binding)


def insert_role_binding(session: Session, **values: Any) -> RoleBinding:
    """Insert a binding with these column values. The caller authorizes. Raises AlreadyExists."""
    # Let the unique constraint detect duplicates, so that concurrent equal requests create only one binding.
    statement = insert(role_bindings).values(id=new_id(), **values).on_conflict_do_nothing()
    row = session.execute(statement.returning(role_bindings)).one_or_none()
    if row is None:
        raise AlreadyExists("The subject already holds this role in this scope.")
    return _binding(row)


def _authorize(actor: Actor, organization_id: UUID, role: Role) -> None:
    authorize_administration(actor, Permission.ROLE_MANAGE, organization_id)
    # Check this for unbinding too: otherwise an administrator could remove the rights of an owner's agent.
    authorize_grant(actor, role, organization_id)


def _require_scope(session: Session, organization_id: UUID, scope_kind: ScopeKind, scope_id: UUID) -> None:
    if scope_kind is ScopeKind.IDENTITY:
        require_identity(session, organization_id, scope_id)
    elif scope_id != organization_id:
        message = "must be the organization itself"
        raise invalid_field("scopeId", message)


def _get(session: Session, binding_id: UUID) -> RoleBinding:
    return get_one(session, select(role_bindings).where(role_bindings.c.id == binding_id), _binding)


def _record(session: Session, actor: Actor, action: str, binding: RoleBinding) -> None:
    record(
        session,
        actor,
        action,
        binding.id,
        resource_kind="role_binding",
        organization_id=binding.organization_id,
        role=binding.role,
        subject=binding.subject_identity_id or binding.subject_user_id,
        scope_kind=binding.scope_kind,
        scope_id=binding.scope_id,
    )


def _binding(row: Row[Any]) -> RoleBinding:
    return RoleBinding(**{**row._asdict(), "role": Role(row.role), "scope_kind": ScopeKind(row.scope_kind)})
