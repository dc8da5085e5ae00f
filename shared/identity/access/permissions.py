"""The permissions with their names in the API (docs/specification/identity.md#permissions), and sets of permissions."""

from enum import StrEnum


class Permission(StrEnum):
    """One right, held in an organization or over one owner identity."""

    FILE_CREATE = "FileCreate"
    FILE_READ = "FileRead"
    FILE_UPDATE = "FileUpdate"
    FILE_DELETE = "FileDelete"
    TASK_READ = "TaskRead"
    MODEL_EXECUTE = "model.execute"

    ORGANIZATION_READ = "organization.read"
    ORGANIZATION_MANAGE = "organization.manage"
    OWNER_MANAGE = "owner.manage"
    MEMBER_MANAGE = "member.manage"
    ROLE_MANAGE = "role.manage"
    IDENTITY_MANAGE = "identity.manage"
    DEPLOYMENT_MANAGE = "deployment.manage"
    DISTRIBUTION_MANAGE = "distribution.manage"
    CREDENTIAL_MANAGE = "credential.manage"
    USAGE_READ = "usage.read"
    CREDIT_READ = "credit.read"
    CREDIT_MANAGE = "credit.manage"
    AUDIT_READ = "audit.read"

    # No role contains this permission: see OPERATOR_PERMISSIONS.
    CREDIT_GRANT = "credit.grant"
    INSTALLATION_OPERATE = "installation.operate"


FILE_PERMISSIONS = frozenset(
    {Permission.FILE_CREATE, Permission.FILE_READ, Permission.FILE_UPDATE, Permission.FILE_DELETE}
)
TOKEN_PERMISSIONS = FILE_PERMISSIONS | {Permission.TASK_READ, Permission.MODEL_EXECUTE}
"""The permissions that an access token can contain; none of them is administrative."""

OPERATOR_PERMISSIONS = frozenset({Permission.CREDIT_GRANT, Permission.INSTALLATION_OPERATE})
"""The permissions that no role contains: to create credits, and to operate the installation."""

ADMINISTRATION_PERMISSIONS = frozenset(Permission) - TOKEN_PERMISSIONS
"""The permissions that an operator holds in every organization."""
