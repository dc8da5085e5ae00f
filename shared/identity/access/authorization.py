"""Authorize administrative functions.

Each administrative function calls one `authorize_` function of this module first. An operator is the command line,
or a user with the operator mark who uses a key that is bound to no organization. Operators administer every
organization, and only operators hold `OPERATOR_PERMISSIONS`. They cannot read the files of an organization.
"""

from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import select

from shared.db.database import Session
from shared.errors import PermissionDenied
from shared.identity.access.callers import Caller, Executor, ExecutorKind
from shared.identity.access.permissions import ADMINISTRATION_PERMISSIONS, Permission
from shared.identity.access.roles import Role, can_grant
from shared.identity.errors import GrantExceedsGranter, ResourceNotFound
from shared.identity.tables import deployments

_NO_ID = UUID(int=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """The caller of one administrative request, with the request id and client address for the audit log."""

    caller: Caller
    request_id: str | None = None
    client_address: str | None = None

    @property
    def user_id(self) -> UUID | None:
        """The id of the acting user; None for the command line and the scheduler."""
        executor = self.caller.executor
        return executor.id if executor.kind is ExecutorKind.USER else None


OPERATOR = Actor(
    caller=Caller(
        executor=Executor(kind=ExecutorKind.OPERATOR, id=_NO_ID),
        credential_id=_NO_ID,
        organization_id=None,
        owner=None,
        payer_id=None,
        is_operator=True,
    )
)
"""The actor of the command line and of scheduled jobs, which hold the database's own credentials."""


def administrator(caller: Caller, request_id: str | None, client_address: str | None = None) -> Actor:
    """Return the actor of a request that a user sent. Raises PermissionDenied if a deployment sent it."""
    if caller.executor.kind is not ExecutorKind.USER:
        raise PermissionDenied("A deployment cannot administer. Use a user's API key.")
    return Actor(caller=caller, request_id=request_id, client_address=client_address)


def holds_administrative_permission(actor: Actor, permission: Permission, organization_id: UUID) -> bool:
    """Return whether the actor holds a permission in an organization, as an operator or by a role there."""
    if actor.caller.is_operator and permission in ADMINISTRATION_PERMISSIONS:
        return True
    return permission in actor.caller.permissions_on(organization_id=organization_id)


def authorize_administration(actor: Actor, permission: Permission, organization_id: UUID) -> None:
    """Check that the actor holds an administrative permission in an organization.

    Raises PermissionDenied if the actor has only other rights in the organization, and ResourceNotFound if the
    actor has no rights there.
    """
    if holds_administrative_permission(actor, permission, organization_id):
        return
    # Without any right the actor must not learn that the organization exists, so raise not_found and not denied.
    if not actor.caller.permissions_on(organization_id=organization_id):
        raise ResourceNotFound
    raise actor.caller.lacks(permission)


def authorize_for_deployment(
    session: Session, actor: Actor, permission: Permission, deployment_id: UUID
) -> UUID:
    """Return the organization of a deployment if the actor holds a permission in it.

    Raises ResourceNotFound if the deployment does not exist, and the errors of `authorize_administration`.
    """
    statement = select(deployments.c.organization_id).where(deployments.c.id == deployment_id)
    organization_id: UUID | None = session.execute(statement).scalar()
    if organization_id is None:
        raise ResourceNotFound
    authorize_administration(actor, permission, organization_id)
    return organization_id


def authorize_operation(actor: Actor) -> None:
    """Raise PermissionDenied unless the actor is an operator of the installation."""
    if not actor.caller.is_operator:
        raise PermissionDenied(
            "Only an operator of this installation may do that.", permission=Permission.INSTALLATION_OPERATE
        )


def authorize_own_or_operator(actor: Actor, user_id: UUID) -> None:
    """Raise ResourceNotFound unless the actor is this user or an operator: a user cannot see other users' accounts."""
    if actor.user_id != user_id and not actor.caller.is_operator:
        raise ResourceNotFound


def authorize_grant(actor: Actor, role: Role, organization_id: UUID) -> None:
    """Raise GrantExceedsGranter unless the actor holds every permission of a role in the organization."""
    if actor.caller.is_operator:
        return
    if not can_grant(actor.caller.permissions_on(organization_id=organization_id), role):
        raise GrantExceedsGranter
