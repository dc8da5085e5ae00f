"""Deployments: agents of an organization that run outside the service and call it as their Daemon Identity.

A new deployment gets a daemon, a first version, and a client id and secret; the secret is shown once. A Daemon
Identity is the service account of one deployment: it executes the deployment's calls and owns the files of calls
without an attribution.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Unpack
from uuid import UUID, uuid4

from sqlalchemy import Row, insert, select, update

from shared.db.database import Session
from shared.errors import invalid_field
from shared.identity.access.authorization import Actor, authorize_administration, authorize_grant
from shared.identity.access.callers import OwnerKind
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import Role
from shared.identity.audit import record
from shared.identity.conditional_updates import mark_disabled, mark_enabled
from shared.identity.credentials.client_credentials import IssuedClientCredential, insert_client_credential
from shared.identity.directory.identities import insert_daemon_identity
from shared.identity.directory.versions import Version, insert_version
from shared.identity.errors import AlreadyExists
from shared.identity.field_validation import require_name
from shared.identity.lookups import get_one, require_identity, require_organization
from shared.identity.tables import deployments, identities, role_bindings
from shared.ids import new_id
from shared.pagination import Page, Position, ascending, paginate


class DeploymentKind(StrEnum):
    """How a deployment authenticates: with a client secret, or also with the tokens of GitHub workflows."""

    REMOTE = "Remote"
    GITHUB = "GitHub"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """A deployment. `client_id` never changes, even when secrets are rotated."""

    id: UUID
    organization_id: UUID
    kind: DeploymentKind
    name: str
    client_id: UUID
    daemon_identity_id: UUID
    active_version_id: UUID | None
    disabled_at: datetime | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedDeployment:
    """A new deployment with its first client secret, which is shown only once."""

    deployment: Deployment
    version: Version
    credential: IssuedClientCredential


def create_deployment(
    session: Session,
    *,
    actor: Actor,
    organization_id: UUID,
    kind: DeploymentKind,
    name: str,
    label: str | None = None,
) -> CreatedDeployment:
    """Create a deployment, its daemon with the role `ProjectAgent`, its first version and its client secret.

    Raises PermissionDenied, GrantExceedsGranter, ResourceNotFound, ValidationFailed.
    """
    authorize_administration(actor, Permission.DEPLOYMENT_MANAGE, organization_id)
    # Check the right to grant: creating a deployment grants a role to the new daemon.
    authorize_grant(actor, Role.PROJECT_AGENT, organization_id)
    require_organization(session, organization_id)
    daemon = insert_daemon_identity(session, organization_id=organization_id, name=name)
    deployment_id = new_id()
    session.execute(
        insert(deployments).values(
            id=deployment_id,
            organization_id=organization_id,
            kind=kind,
            name=require_name(name),
            client_id=uuid4(),
            daemon_identity_id=daemon.id,
        )
    )
    version = insert_version(session, deployment_id=deployment_id, label=label)
    deployment = _get(session, deployment_id)
    credential = insert_client_credential(session, deployment_id=deployment_id, expires_at=None)
    _record(session, actor, "deployment.created", deployment)
    return CreatedDeployment(deployment=deployment, version=version, credential=credential)


def get_deployment(session: Session, *, actor: Actor, deployment_id: UUID) -> Deployment:
    """Return a deployment. Raises ResourceNotFound, PermissionDenied."""
    return _authorized(session, actor, Permission.ORGANIZATION_READ, deployment_id)


def list_deployments(
    session: Session, *, actor: Actor, organization_id: UUID, **page: Unpack[Position]
) -> Page[Deployment]:
    """Return a page of an organization's deployments, oldest first."""
    authorize_administration(actor, Permission.ORGANIZATION_READ, organization_id)
    statement = select(deployments).where(deployments.c.organization_id == organization_id)
    return paginate(session, statement, ascending(deployments.c.id), _deployment, **page)


def disable_deployment(session: Session, *, actor: Actor, deployment_id: UUID) -> Deployment:
    """Disable a deployment. Its tokens and secrets are refused until it is enabled."""
    deployment = _authorized(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    if mark_disabled(session, deployments, deployments.c.disabled_at, deployment_id):
        _record(session, actor, "deployment.disabled", deployment)
    return _get(session, deployment_id)


def enable_deployment(session: Session, *, actor: Actor, deployment_id: UUID) -> Deployment:
    """Enable a disabled deployment."""
    deployment = _authorized(session, actor, Permission.DEPLOYMENT_MANAGE, deployment_id)
    if mark_enabled(session, deployments, deployments.c.disabled_at, deployment_id):
        _record(session, actor, "deployment.enabled", deployment)
    return _get(session, deployment_id)


def change_daemon(
    session: Session, *, actor: Actor, deployment_id: UUID, daemon_identity_id: UUID | None
) -> Deployment:
    """Assign another daemon to a deployment.

    If `daemon_identity_id` is None, create a new daemon. Otherwise it names a daemon that serves no other deployment.

    The previous daemon keeps its files and can be assigned again. The change takes effect within seconds, also for
    tokens that were issued before. Raises ResourceNotFound, PermissionDenied, GrantExceedsGranter, AlreadyExists,
    ValidationFailed.
    """
    before = get_deployment(session, actor=actor, deployment_id=deployment_id)
    organization_id = before.organization_id
    authorize_administration(actor, Permission.DEPLOYMENT_MANAGE, organization_id)
    if daemon_identity_id == before.daemon_identity_id:
        return before
    if daemon_identity_id is None:
        authorize_grant(actor, Role.PROJECT_AGENT, organization_id)
        daemon_id = insert_daemon_identity(session, organization_id=organization_id, name=before.name).id
    else:
        daemon_id = daemon_identity_id
        _require_free(session, actor, organization_id, daemon_id)
    changed = update(deployments).where(deployments.c.id == deployment_id)
    session.execute(changed.values(daemon_identity_id=daemon_id))
    record(
        session,
        actor,
        "deployment.daemon_changed",
        deployment_id,
        organization_id=organization_id,
        daemon_identity_id=daemon_id,
        instead_of=before.daemon_identity_id,
    )
    return get_deployment(session, actor=actor, deployment_id=deployment_id)


def _authorized(session: Session, actor: Actor, permission: Permission, deployment_id: UUID) -> Deployment:
    deployment = _get(session, deployment_id)
    authorize_administration(actor, permission, deployment.organization_id)
    return deployment


def _require_free(session: Session, actor: Actor, organization_id: UUID, identity_id: UUID) -> None:
    """Check that an identity is a Daemon Identity without a deployment, and that the actor holds all its permissions.

    Otherwise an administrator could gain rights by assigning a more powerful daemon.
    """
    require_identity(session, organization_id, identity_id)
    # Lock the identity, so that of two concurrent assignments one is refused.
    found = select(identities.c.kind).where(identities.c.id == identity_id).with_for_update()
    if session.execute(found).scalar_one() != OwnerKind.DAEMON_IDENTITY:
        message = "must be a Daemon Identity"
        raise invalid_field("daemonIdentityId", message)
    roles = select(role_bindings.c.role).where(role_bindings.c.subject_identity_id == identity_id)
    for role in session.execute(roles.distinct()).scalars():
        authorize_grant(actor, Role(role), organization_id)
    served = select(deployments.c.id).where(deployments.c.daemon_identity_id == identity_id)
    if session.execute(served).first() is not None:
        raise AlreadyExists("This identity is the daemon of another deployment.")


def _get(session: Session, deployment_id: UUID) -> Deployment:
    return get_one(session, select(deployments).where(deployments.c.id == deployment_id), _deployment)


def _record(session: Session, actor: Actor, action: str, deployment: Deployment) -> None:
    record(session, actor, action, deployment.id, organization_id=deployment.organization_id)


def _deployment(row: Row[Any]) -> Deployment:
    return Deployment(**{**row._asdict(), "kind": DeploymentKind(row.kind)})
