"""Decide who may read an organization's credits and usage, and which organization pays for a request.

A caller reads what its own key spends in the organization that it acts in; an administrator names the organization.
Both rules are decided here and nowhere else.
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
    """The usage that a caller may read: an organization's, or only one user's share of it if `user_id` is set."""

    organization_id: UUID
    user_id: UUID | None


def require_billing_organization(caller: Caller) -> UUID:
    """Return the organization that a caller acts in. Raises BillingOrganizationRequired without it or a payer."""
    # Both, so that no call can be charged to an organization that the caller only acts in.
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
    """Return the usage a caller may read: the organization's with `usage.read`, otherwise a member's own.

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
    # An operator passes the check above for any id.
    require_organization(session, organization_id)
