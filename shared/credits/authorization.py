"""Decide who may read an organization's credits and usage, and which organization pays for a request.

A caller reads the credits and usage of the organization in which it acts. An administrator names the organization.
No other module decides these rules.
"""

from dataclasses import dataclass
from uuid import UUID

from shared.credits.errors import BillingOrganizationRequired
from shared.db.database import Session
from shared.errors import PermissionDenied
from shared.identity.access.authorization import Actor, authorize_administration
from shared.identity.access.callers import Caller, ExecutorKind
from shared.identity.access.permissions import Permission
from shared.identity.lookups import require_organization


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageScope:
    """The usage that a caller may read: all usage of an organization, or only that of one user if `user_id` is set."""

    organization_id: UUID
    user_id: UUID | None


def require_billing_organization(caller: Caller) -> UUID:
    """Return the organization that a caller acts in. Raises BillingOrganizationRequired without it or a payer."""
    # Require both, so that no call can be charged to an organization that the caller acts in but that does not pay.
    if caller.organization_id is None or caller.payer_id is None:
        raise BillingOrganizationRequired
    return caller.organization_id


def authorize_reading(caller: Caller, permission: Permission) -> UUID:
    """Return the caller's organization if the caller holds a permission to read its credits or usage.

    Raises BillingOrganizationRequired, PermissionDenied.
    """
    organization_id = require_billing_organization(caller)
    if permission not in caller.permissions_on(organization_id=organization_id):
        raise PermissionDenied(permission=permission)
    return organization_id


def authorize_usage(caller: Caller) -> UsageScope:
    """Return the usage that a caller may read: with `usage.read` the organization's, otherwise a member's own usage.

    Raises BillingOrganizationRequired, PermissionDenied.
    """
    organization_id = require_billing_organization(caller)
    permissions = caller.permissions_on(organization_id=organization_id)
    if Permission.USAGE_READ in permissions:
        return UsageScope(organization_id=organization_id, user_id=None)
    if caller.executor.kind is ExecutorKind.USER and Permission.ORGANIZATION_READ in permissions:
        return UsageScope(organization_id=organization_id, user_id=caller.executor.id)
    raise PermissionDenied(permission=Permission.USAGE_READ)


def authorize_administrative_reading(
    session: Session, actor: Actor, permission: Permission, organization_id: UUID
) -> None:
    """Check that an administrator may read an organization's credits or usage, and that the organization exists.

    Raises PermissionDenied, ResourceNotFound.
    """
    authorize_administration(actor, permission, organization_id)
    # An operator passes the check above for any id, so check that the organization exists.
    require_organization(session, organization_id)
