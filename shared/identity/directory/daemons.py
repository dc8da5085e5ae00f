"""Change the daemon of a deployment: who executes its calls, and owns what it stores by itself.

Each Daemon Identity executes for one deployment. What the daemon before stored stays its own, and it can be given back.
The change takes effect as a revocation does: within seconds, for tokens that were issued before as well.
"""

from uuid import UUID

from sqlalchemy import select, update

from shared.db.database import Session
from shared.errors import FieldError, ValidationFailed
from shared.identity.access.authorization import Actor, authorize_administration, authorize_grant
from shared.identity.access.callers import OwnerKind
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import Role
from shared.identity.audit import record
from shared.identity.directory.deployments import Deployment, get_deployment
from shared.identity.directory.identities import insert_daemon_identity
from shared.identity.errors import AlreadyExists
from shared.identity.lookups import require_identity
from shared.identity.tables import deployments, identities, role_bindings


def change_daemon(
    session: Session, *, actor: Actor, deployment_id: UUID, daemon_identity_id: UUID | None
) -> Deployment:
    """Give a deployment another daemon: a new one, or a Daemon Identity of the organization that serves no other.

    Raises ResourceNotFound, PermissionDenied, GrantExceedsGranter, AlreadyExists, ValidationFailed.
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


def _require_free(session: Session, actor: Actor, organization_id: UUID, identity_id: UUID) -> None:
    """Raise unless an identity can become a daemon by the hand of one who holds all that it holds."""
    require_identity(session, organization_id, identity_id)
    # Locked, so that of two who give it away one is refused.
    found = select(identities.c.kind).where(identities.c.id == identity_id).with_for_update()
    if session.execute(found).scalar_one() != OwnerKind.DAEMON_IDENTITY:
        message = "must be a Daemon Identity"
        raise ValidationFailed(errors=[FieldError(location="body", name="daemonIdentityId", message=message)])
    roles = select(role_bindings.c.role).where(role_bindings.c.subject_identity_id == identity_id)
    for role in session.execute(roles.distinct()).scalars():
        authorize_grant(actor, Role(role), organization_id)
    served = select(deployments.c.id).where(deployments.c.daemon_identity_id == identity_id)
    if session.execute(served).first() is not None:
        raise AlreadyExists("This identity is the daemon of another deployment.")
