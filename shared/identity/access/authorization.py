"""Authorize administration: the one check in front of every function of this domain.

An organization in which a caller has no right does not exist for them; with some right but not this one, it is
denied. An operator is a user marked as one who asks with an unbound key, or the command line. Operators administer
every organization, alone hold `OPERATOR_PERMISSIONS`, and read nobody's files.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select

from shared.db.database import Session
from shared.errors import PermissionDenied
from shared.identity.access.callers import Caller, Executor, ExecutorKind
from shared.identity.access.permissions import ADMINISTRATION_PERMISSIONS, Permission
from shared.identity.access.roles import ROLE_PERMISSIONS, Role
from shared.identity.errors import GrantExceedsGranter, ResourceNotFound
from shared.identity.tables import deployments

_NOBODY = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The caller of one administrative request, and for the audit the request's id and the client's address."""

    caller: Caller
    request_id: str | None = None
    client_address: str | None = None

    @property
    def user_id(self) -> UUID | None:
        """The user who acts, if one does."""
        executor = self.caller.executor
        return executor.id if executor.kind is ExecutorKind.USER else None


OPERATOR = Actor(
    caller=Caller(
        executor=Executor(kind=ExecutorKind.OPERATOR, id=_NOBODY),
        credential_id=_NOBODY,
        organization_id=None,
        owner=None,
        payer_id=None,
        is_operator=True,
    )
)
"""The holder of the database's own credentials: the command line and the schedule."""


def administrator(caller: Caller, request_id: str | None, client_address: str | None = None) -> Actor:
    """Return the administrator of a request, with the user's permissions; raise PermissionDenied for a deployment."""
    if caller.executor.kind is not ExecutorKind.USER:
        raise PermissionDenied("A deployment does not administer; use a user's API key.")
    return Actor(caller=caller, request_id=request_id, client_address=client_address)


def authorize_administration(actor: Actor, permission: Permission, organization_id: UUID) -> None:
    """Raise unless the actor holds an administrative permission in an organization."""
    caller = actor.caller
    if caller.is_operator and permission in ADMINISTRATION_PERMISSIONS:
        return
    held = caller.permissions_on(organization_id=organization_id)
    if permission in held:
        return
    if not held:
        raise ResourceNotFound
    raise caller.lacks(permission)


def authorize_for_deployment(
    session: Session, actor: Actor, permission: Permission, deployment_id: UUID
) -> UUID:
    """Raise unless the actor holds a permission in the organization of a deployment; give that organization."""
    statement = select(deployments.c.organization_id).where(deployments.c.id == deployment_id)
    organization_id: UUID | None = session.execute(statement).scalar()
    if organization_id is None:
        raise ResourceNotFound
    authorize_administration(actor, permission, organization_id)
    return organization_id


def authorize_operation(actor: Actor) -> None:
    """Raise unless the actor is an operator of the installation."""
    if not actor.caller.is_operator:
        raise PermissionDenied(
            "Only an operator of this installation may do that.", permission=Permission.INSTALLATION_OPERATE
        )


def authorize_grant(actor: Actor, role: Role, organization_id: UUID) -> None:
    """Raise unless the actor holds every permission of a role: an actor grants only what it holds."""
    if actor.caller.is_operator:
        return
    if not ROLE_PERMISSIONS[role] <= actor.caller.permissions_on(organization_id=organization_id):
        raise GrantExceedsGranter
