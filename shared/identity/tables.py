"""The tables of identity, mirrored by migration 0001.

Rows are disabled or revoked, not deleted, so that the audit log stays explicable; only memberships, role bindings,
spent signing keys and expired revocations go. Secrets are stored as SHA-256, or encrypted where they must be read
back. A trigger refuses updates and deletes of `audit_events`.
"""

from sqlalchemy import (
    ARRAY,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from shared.schema import created_at, id_column, instant, metadata

organizations = Table(
    "organizations",
    metadata,
    id_column(),
    Column("name", Text, nullable=False),
    instant("suspended_at"),
    created_at(),
)

users = Table(
    "users",
    metadata,
    id_column(),
    Column("email", Text, nullable=False),
    Column("is_operator", Boolean, nullable=False, server_default=text("false")),
    Column("active_organization_id", ForeignKey("organizations.id")),
    instant("disabled_at"),
    created_at(),
    Index("uq_users_email", func.lower(text("email")), unique=True),
)

memberships = Table(
    "memberships",
    metadata,
    Column("organization_id", ForeignKey("organizations.id"), primary_key=True),
    Column("user_id", ForeignKey("users.id"), primary_key=True, index=True),
    Column("role", Text, nullable=False),
    created_at(),
    CheckConstraint("role IN ('Member', 'WorkspaceAdmin', 'WorkspaceOwner')", name="role"),
)

invitations = Table(
    "invitations",
    metadata,
    id_column(),
    Column("organization_id", ForeignKey("organizations.id"), nullable=False),
    Column("email", Text),
    Column("user_id", ForeignKey("users.id")),
    Column("role", Text, nullable=False),
    Column("invited_by", ForeignKey("users.id")),
    Column("token_hash", LargeBinary, nullable=False),
    Column("last4", Text, nullable=False),
    instant("expires_at", nullable=False),
    instant("accepted_at"),
    Column("accepted_by", ForeignKey("users.id")),
    instant("revoked_at"),
    created_at(),
    CheckConstraint("role IN ('Member', 'WorkspaceAdmin', 'WorkspaceOwner')", name="role"),
    CheckConstraint("num_nonnulls(email, user_id) = 1", name="one_invitee"),
    UniqueConstraint("token_hash"),
    Index("ix_invitations_organization_id_id", "organization_id", "id"),
)

identities = Table(
    "identities",
    metadata,
    id_column(),
    Column("organization_id", ForeignKey("organizations.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    instant("disabled_at"),
    created_at(),
    CheckConstraint("kind IN ('PrincipalIdentity', 'DaemonIdentity')", name="kind"),
    Index("ix_identities_organization_id_id", "organization_id", "id"),
)

deployments = Table(
    "deployments",
    metadata,
    id_column(),
    Column("organization_id", ForeignKey("organizations.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("client_id", Uuid, nullable=False),
    Column("daemon_identity_id", ForeignKey("identities.id"), nullable=False),
    Column(
        "active_version_id",
        ForeignKey("versions.id", use_alter=True, name="fk_deployments_active_version_id"),
    ),
    instant("disabled_at"),
    created_at(),
    CheckConstraint("kind IN ('Remote', 'GitHub')", name="kind"),
    UniqueConstraint("client_id"),
    UniqueConstraint("daemon_identity_id"),
    Index("ix_deployments_organization_id_id", "organization_id", "id"),
    Index("ix_deployments_enabled", "id", postgresql_where=text("disabled_at IS NULL")),
)

versions = Table(
    "versions",
    metadata,
    id_column(),
    Column("deployment_id", ForeignKey("deployments.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("label", Text),
    instant("revoked_at"),
    created_at(),
    CheckConstraint("number > 0", name="number"),
    UniqueConstraint("deployment_id", "number"),
)

client_credentials = Table(
    "client_credentials",
    metadata,
    id_column(),
    Column("deployment_id", ForeignKey("deployments.id"), nullable=False, index=True),
    Column("secret_hash", LargeBinary, nullable=False),
    Column("last4", Text, nullable=False),
    instant("expires_at"),
    instant("revoked_at"),
    instant("last_used_at"),
    created_at(),
    UniqueConstraint("secret_hash"),
)

distributions = Table(
    "distributions",
    metadata,
    id_column(),
    Column("organization_id", ForeignKey("organizations.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("networks", ARRAY(Text), nullable=False),
    Column("principal_identity_id", ForeignKey("identities.id"), nullable=False, index=True),
    Column("deployment_id", ForeignKey("deployments.id"), nullable=False, index=True),
    Column("token_hash", LargeBinary, nullable=False),
    Column("token_last4", Text, nullable=False),
    Column("previous_token_hash", LargeBinary),
    instant("previous_token_expires_at"),
    Column("webhook_secret_encrypted", LargeBinary, nullable=False),
    Column("previous_webhook_secret_encrypted", LargeBinary),
    instant("previous_webhook_secret_expires_at"),
    Column("media_retention_days", Integer, nullable=False, server_default=text("30")),
    instant("disabled_at"),
    instant("last_used_at"),
    created_at(),
    CheckConstraint("media_retention_days BETWEEN 1 AND 3650", name="media_retention_days"),
    UniqueConstraint("token_hash"),
    UniqueConstraint("previous_token_hash"),
    Index("ix_distributions_organization_id_id", "organization_id", "id"),
    Index(
        "ix_distributions_enabled_of_deployment",
        "deployment_id",
        "id",
        postgresql_where=text("disabled_at IS NULL"),
    ),
)

role_bindings = Table(
    "role_bindings",
    metadata,
    id_column(),
    Column("organization_id", ForeignKey("organizations.id"), nullable=False),
    Column("subject_identity_id", ForeignKey("identities.id")),
    Column("subject_user_id", ForeignKey("users.id")),
    Column("role", Text, nullable=False),
    Column("scope_kind", Text, nullable=False),
    Column("scope_id", Uuid, nullable=False),
    created_at(),
    CheckConstraint("num_nonnulls(subject_identity_id, subject_user_id) = 1", name="one_subject"),
    CheckConstraint("role IN ('ProjectAgent', 'Member', 'WorkspaceAdmin', 'WorkspaceOwner')", name="role"),
    CheckConstraint("scope_kind IN ('Organization', 'Identity')", name="scope_kind"),
    CheckConstraint("scope_kind = 'Identity' OR scope_id = organization_id", name="organization_scope"),
    UniqueConstraint(
        "subject_identity_id",
        "subject_user_id",
        "role",
        "scope_id",
        name="uq_role_bindings_grant",
        postgresql_nulls_not_distinct=True,
    ),
    Index("ix_role_bindings_organization_id_id", "organization_id", "id"),
    Index("ix_role_bindings_subject_user_id", "subject_user_id"),
)

api_keys = Table(
    "api_keys",
    metadata,
    id_column(),
    Column("user_id", ForeignKey("users.id"), nullable=False, index=True),
    Column("organization_id", ForeignKey("organizations.id"), index=True),
    Column("name", Text, nullable=False),
    Column("hash", LargeBinary, nullable=False),
    Column("last4", Text, nullable=False),
    instant("expires_at"),
    instant("revoked_at"),
    instant("last_used_at"),
    created_at(),
    UniqueConstraint("hash"),
)

signing_keys = Table(
    "signing_keys",
    metadata,
    Column("kid", Text, primary_key=True),
    Column("purpose", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("private_jwk_encrypted", LargeBinary, nullable=False),
    created_at(),
    instant("activated_at"),
    instant("retired_at"),
    CheckConstraint("purpose IN ('access', 'attribution')", name="purpose"),
    CheckConstraint("state IN ('next', 'current', 'previous')", name="state"),
    Index("uq_signing_keys_next", "purpose", unique=True, postgresql_where=text("state = 'next'")),
    Index("uq_signing_keys_current", "purpose", unique=True, postgresql_where=text("state = 'current'")),
)

revoked_tokens = Table(
    "revoked_tokens",
    metadata,
    Column("jti", Text, primary_key=True),
    instant("expires_at", nullable=False, index=True),
)

audit_events = Table(
    "audit_events",
    metadata,
    id_column(),
    Column("organization_id", ForeignKey("organizations.id")),
    Column("actor_kind", Text, nullable=False),
    Column("actor_id", Uuid, nullable=False),
    Column("action", Text, nullable=False),
    Column("resource_kind", Text, nullable=False),
    Column("resource_id", Text, nullable=False),
    Column("details", JSONB, nullable=False, server_default=text("'{}'::jsonb")),
    Column("request_id", Text),
    instant("at", nullable=False, server_default=func.now()),
    Column("credential_id", Uuid),
    Column("client_address", Text),
    Index("ix_audit_events_organization_id_id", "organization_id", "id"),
)
