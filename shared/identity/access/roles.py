"""The roles: fixed sets of permissions, given to users by memberships and to identities by role bindings."""

from collections.abc import Mapping
from enum import StrEnum

from shared.identity.access.permissions import OPERATOR_PERMISSIONS, TOKEN_PERMISSIONS, Permission


class Role(StrEnum):
    """A named set of permissions."""

    PROJECT_AGENT = "ProjectAgent"
    MEMBER = "Member"
    WORKSPACE_ADMIN = "WorkspaceAdmin"
    WORKSPACE_OWNER = "WorkspaceOwner"


class ScopeKind(StrEnum):
    """The scope of a role: every owner of an organization, or one owner identity."""

    ORGANIZATION = "Organization"
    IDENTITY = "Identity"


MEMBERSHIP_ROLES = frozenset({Role.MEMBER, Role.WORKSPACE_ADMIN, Role.WORKSPACE_OWNER})
# Only owners change owners and the organization's limits.
_OWNER_ONLY = frozenset({Permission.OWNER_MANAGE, Permission.CREDIT_MANAGE})
_ALL_OF_AN_OWNER = frozenset(Permission) - OPERATOR_PERMISSIONS

ROLE_PERMISSIONS: Mapping[Role, frozenset[Permission]] = {
    # An agent never deletes files (docs/specification/identity.md#permissions).
    Role.PROJECT_AGENT: TOKEN_PERMISSIONS - {Permission.FILE_DELETE},
    Role.MEMBER: frozenset({Permission.FILE_READ, Permission.MODEL_EXECUTE, Permission.ORGANIZATION_READ}),
    Role.WORKSPACE_ADMIN: _ALL_OF_AN_OWNER - _OWNER_ONLY,
    Role.WORKSPACE_OWNER: _ALL_OF_AN_OWNER,
}


def can_grant(held: frozenset[Permission], role: Role) -> bool:
    """Return whether the holder of these permissions may grant a role: `held` must include all its permissions."""
    return ROLE_PERMISSIONS[role] <= held
