"""Identities, which own files: Principal Identities and Daemon Identities.

A Principal Identity receives messages through distributions. A Daemon Identity is a deployment's service account and
executes its calls.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Unpack
from uuid import UUID

from sqlalchemy import Row, insert, select

from shared.db.database import Session
from shared.identity.access.authorization import Actor, authorize_administration, authorize_grant
from shared.identity.access.callers import OwnerKind
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import Role, ScopeKind
from shared.identity.audit import record
from shared.identity.conditional_updates import mark_disabled, mark_enabled
from shared.identity.directory.role_bindings import insert_role_binding
from shared.identity.field_validation import require_name
from shared.identity.lookups import get_one, require_organization
from shared.identity.tables import identities
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """An identity of either kind."""

    id: UUID
    organization_id: UUID
    kind: OwnerKind
    name: str
    disabled_at: datetime | None
    created_at: datetime


def create_principal_identity(
    session: Session, *, actor: Actor, organization_id: UUID, name: str
) -> Identity:
    """Create an identity that can receive messages. Raises PermissionDenied, GrantExceedsGranter, ResourceNotFound."""
    authorize_administration(actor, Permission.IDENTITY_MANAGE, organization_id)
    authorize_grant(actor, Role.PROJECT_AGENT, organization_id)
    require_organization(session, organization_id)
    identity = _insert(session, organization_id, OwnerKind.PRINCIPAL_IDENTITY, name)
    # Bind a role: without `FileCreate` over itself, a receiving identity could not import media.
    insert_role_binding(
        session,
        organization_id=organization_id,
        subject_identity_id=identity.id,
        role=Role.PROJECT_AGENT,
        scope_kind=ScopeKind.IDENTITY,
        scope_id=identity.id,
    )
    _record(session, actor, "identity.created", identity)
    return identity


def insert_daemon_identity(session: Session, *, organization_id: UUID, name: str) -> Identity:
    """Insert the Daemon Identity of a new deployment, as a `ProjectAgent` of the organization.

    The caller authorizes and records the audit event.
    """
    identity = _insert(session, organization_id, OwnerKind.DAEMON_IDENTITY, name)
    insert_role_binding(
        session,
        organization_id=organization_id,
        subject_identity_id=identity.id,
        role=Role.PROJECT_AGENT,
        scope_kind=ScopeKind.ORGANIZATION,
        scope_id=organization_id,
    )
    return identity


def get_identity(session: Session, *, actor: Actor, identity_id: UUID) -> Identity:
    """Return an identity. Raises ResourceNotFound, PermissionDenied."""
    return _authorized(session, actor, Permission.ORGANIZATION_READ, identity_id)


def list_identities(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[Identity]:
    """Return a page of an organization's Principal Identities and Daemon Identities, oldest first."""
    authorize_administration(actor, Permission.ORGANIZATION_READ, organization_id)
    statement = select(identities).where(identities.c.organization_id == organization_id)
    return paginate(session, statement, ascending(identities.c.id), _identity, **page)


def disable_identity(session: Session, *, actor: Actor, identity_id: UUID) -> Identity:
    """Disable an identity. Until it is enabled, it executes no calls and receives no messages."""
    identity = _authorized(session, actor, Permission.IDENTITY_MANAGE, identity_id)
    if mark_disabled(session, identities, identities.c.disabled_at, identity_id):
        _record(session, actor, "identity.disabled", identity)
    return _get(session, identity_id)


def enable_identity(session: Session, *, actor: Actor, identity_id: UUID) -> Identity:
    """Enable a disabled identity."""
    identity = _authorized(session, actor, Permission.IDENTITY_MANAGE, identity_id)
    if mark_enabled(session, identities, identities.c.disabled_at, identity_id):
        _record(session, actor, "identity.enabled", identity)
    return _get(session, identity_id)


def _authorized(session: Session, actor: Actor, permission: Permission, identity_id: UUID) -> Identity:
    identity = _get(session, identity_id)
    authorize_administration(actor, permission, identity.organization_id)
    return identity


def _get(session: Session, identity_id: UUID) -> Identity:
    return get_one(session, select(identities).where(identities.c.id == identity_id), _identity)


def _insert(session: Session, organization_id: UUID, kind: OwnerKind, name: str) -> Identity:
    values = {"id": new_id(), "organization_id": organization_id, "kind": kind, "name": require_name(name)}
    return _identity(session.execute(insert(identities).values(values).returning(identities)).one())


def _record(session: Session, actor: Actor, action: str, identity: Identity) -> None:
    record(session, actor, action, identity.id, organization_id=identity.organization_id, kind=identity.kind)


def _identity(row: Row[Any]) -> Identity:
    return Identity(**{**row._asdict(), "kind": OwnerKind(row.kind)})
