"""The tables of identity; migration 0001 creates them.

Rows are disabled or revoked instead of deleted, so that the ids in the audit log can be resolved. Only memberships,
role bindings, retired signing keys and expired revocations are deleted. A secret is stored as its SHA-256, or
encrypted if the service must read it back. A trigger refuses updates and deletes of `audit_events`.
"""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from shared.db.schema import created_at, id_column, instant, metadata, one_of, required, unique_group

organizations = sa.Table(
    "organizations",
    metadata,
    id_column(),
    required("name", sa.Text),
    instant("suspended_at"),
    created_at(),
)

users = sa.Table(
    "users",
    metadata,
    id_column(),
    required("email", sa.Text),
    required("is_operator", sa.Boolean, server_default=sa.text("false")),
    sa.Column("active_organization_id", sa.ForeignKey("organizations.id")),
    instant("disabled_at"),
    created_at(),
    # Collation "C" lowers ASCII letters only: see `email_addresses.py`.
    sa.Index("uq_users_email", sa.text('lower(email COLLATE "C")'), unique=True),
)

memberships = sa.Table(
    "memberships",
    metadata,
    sa.Column("organization_id", sa.ForeignKey("organizations.id"), primary_key=True),
    sa.Column("user_id", sa.ForeignKey("users.id"), primary_key=True, index=True),
    required("role", sa.Text),
    created_at(),
    one_of("role", "Member", "WorkspaceAdmin", "WorkspaceOwner"),
)

invitations = sa.Table(
    "invitations",
    metadata,
    id_column(),
    required("organization_id", sa.ForeignKey("organizations.id")),
    sa.Column("email", sa.Text),
    sa.Column("user_id", sa.ForeignKey("users.id")),
    required("role", sa.Text),
    sa.Column("invited_by", sa.ForeignKey("users.id")),
    required("token_hash", sa.LargeBinary),
    required("last4", sa.Text),
    instant("expires_at", nullable=False),
    instant("accepted_at"),
    sa.Column("accepted_by", sa.ForeignKey("users.id")),
    instant("revoked_at"),
    created_at(),
    one_of("role", "Member", "WorkspaceAdmin", "WorkspaceOwner"),
    sa.CheckConstraint("num_nonnulls(email, user_id) = 1", name="one_invitee"),
    sa.UniqueConstraint("token_hash"),
    sa.Index("ix_invitations_organization_id_id", "organization_id", "id"),
)

identities = sa.Table(
    "identities",
    metadata,
    id_column(),
    required("organization_id", sa.ForeignKey("organizations.id")),
    required("kind", sa.Text),
    required("name", sa.Text),
    instant("disabled_at"),
    created_at(),
    one_of("kind", "PrincipalIdentity", "DaemonIdentity"),
    sa.Index("ix_identities_organization_id_id", "organization_id", "id"),
)

deployments = sa.Table(
    "deployments",
    metadata,
    id_column(),
    required("organization_id", sa.ForeignKey("organizations.id")),
    required("kind", sa.Text),
    required("name", sa.Text),
    required("client_id", sa.Uuid),
    required("daemon_identity_id", sa.ForeignKey("identities.id")),
    sa.Column(
        "active_version_id",
        sa.ForeignKey("versions.id", use_alter=True, name="fk_deployments_active_version_id"),
    ),
    instant("disabled_at"),
    created_at(),
    one_of("kind", "Remote", "GitHub"),
    sa.UniqueConstraint("client_id"),
    sa.UniqueConstraint("daemon_identity_id"),
    sa.Index("ix_deployments_organization_id_id", "organization_id", "id"),
    sa.Index("ix_deployments_enabled", "id", postgresql_where=sa.text("disabled_at IS NULL")),
    sa.Index(
        "ix_deployments_enabled_of_organization",
        "organization_id",
        "id",
        postgresql_where=sa.text("disabled_at IS NULL"),
    ),
)

versions = sa.Table(
    "versions",
    metadata,
    id_column(),
    required("deployment_id", sa.ForeignKey("deployments.id")),
    required("number", sa.Integer),
    sa.Column("label", sa.Text),
    instant("revoked_at"),
    created_at(),
    sa.CheckConstraint("number > 0", name="number"),
    sa.UniqueConstraint("deployment_id", "number"),
    sa.Index("ix_versions_deployment_id_id", "deployment_id", "id"),
)

client_credentials = sa.Table(
    "client_credentials",
    metadata,
    id_column(),
    required("deployment_id", sa.ForeignKey("deployments.id")),
    required("secret_hash", sa.LargeBinary),
    required("last4", sa.Text),
    instant("expires_at"),
    instant("revoked_at"),
    instant("last_used_at"),
    # True for the credential behind the tokens of GitHub workflows: its secret was never shown to anyone.
    required("is_of_workflows", sa.Boolean, server_default=sa.false()),
    created_at(),
    sa.UniqueConstraint("secret_hash"),
    sa.Index("ix_client_credentials_deployment_id_id", "deployment_id", "id"),
)

deployment_repositories = sa.Table(
    "deployment_repositories",
    metadata,
    sa.Column("deployment_id", sa.ForeignKey("deployments.id"), primary_key=True),
    required("repository", sa.Text),
    sa.Column("ref", sa.Text),
    sa.Column("environment", sa.Text),
    sa.Column("issuer", sa.Text),
    sa.Column("repository_id", sa.Text),
    sa.Column("repository_owner_id", sa.Text),
    required("credential_id", sa.ForeignKey("client_credentials.id")),
    instant("updated_at", nullable=False, server_default=sa.func.now()),
    created_at(),
)

distributions = sa.Table(
    "distributions",
    metadata,
    id_column(),
    required("organization_id", sa.ForeignKey("organizations.id")),
    required("name", sa.Text),
    required("networks", sa.ARRAY(sa.Text)),
    required("principal_identity_id", sa.ForeignKey("identities.id"), index=True),
    required("deployment_id", sa.ForeignKey("deployments.id"), index=True),
    required("token_hash", sa.LargeBinary),
    required("token_last4", sa.Text),
    sa.Column("previous_token_hash", sa.LargeBinary),
    instant("previous_token_expires_at"),
    required("webhook_secret_encrypted", sa.LargeBinary),
    sa.Column("previous_webhook_secret_encrypted", sa.LargeBinary),
    instant("previous_webhook_secret_expires_at"),
    required("media_retention_days", sa.Integer, server_default=sa.text("30")),
    required("routes_messages", sa.Boolean, server_default=sa.text("false")),
    instant("disabled_at"),
    instant("last_used_at"),
    created_at(),
    sa.CheckConstraint("media_retention_days BETWEEN 1 AND 3650", name="media_retention_days"),
    sa.UniqueConstraint("token_hash"),
    sa.UniqueConstraint("previous_token_hash"),
    sa.Index("ix_distributions_organization_id_id", "organization_id", "id"),
    sa.Index(
        "ix_distributions_enabled_of_deployment",
        "deployment_id",
        "id",
        postgresql_where=sa.text("disabled_at IS NULL"),
    ),
)

role_bindings = sa.Table(
    "role_bindings",
    metadata,
    id_column(),
    required("organization_id", sa.ForeignKey("organizations.id")),
    sa.Column("subject_identity_id", sa.ForeignKey("identities.id")),
    sa.Column("subject_user_id", sa.ForeignKey("users.id")),
    required("role", sa.Text),
    required("scope_kind", sa.Text),
    required("scope_id", sa.Uuid),
    created_at(),
    sa.CheckConstraint("num_nonnulls(subject_identity_id, subject_user_id) = 1", name="one_subject"),
    one_of("role", "ProjectAgent", "Member", "WorkspaceAdmin", "WorkspaceOwner"),
    one_of("scope_kind", "Organization", "Identity"),
    # No binding crosses organizations.
    sa.CheckConstraint("scope_kind = 'Identity' OR scope_id = organization_id", name="organization_scope"),
    unique_group("uq_role_bindings_grant", "subject_identity_id", "subject_user_id", "role", "scope_id"),
    sa.Index("ix_role_bindings_organization_id_id", "organization_id", "id"),
    sa.Index("ix_role_bindings_subject_user_id", "subject_user_id"),
)

api_keys = sa.Table(
    "api_keys",
    metadata,
    id_column(),
    required("user_id", sa.ForeignKey("users.id")),
    sa.Column("organization_id", sa.ForeignKey("organizations.id")),
    required("name", sa.Text),
    required("hash", sa.LargeBinary),
    required("last4", sa.Text),
    instant("expires_at"),
    instant("revoked_at"),
    instant("last_used_at"),
    created_at(),
    sa.UniqueConstraint("hash"),
    sa.Index("ix_api_keys_user_id_id", "user_id", "id"),
    sa.Index("ix_api_keys_organization_id_id", "organization_id", "id"),
)

signing_keys = sa.Table(
    "signing_keys",
    metadata,
    sa.Column("kid", sa.Text, primary_key=True),
    required("purpose", sa.Text),
    required("state", sa.Text),
    required("private_jwk_encrypted", sa.LargeBinary),
    created_at(),
    instant("activated_at"),
    instant("retired_at"),
    one_of("purpose", "access", "attribution"),
    one_of("state", "next", "current", "previous"),
    # These indexes allow one next and one current key of each purpose, even if two processes rotate concurrently.
    sa.Index("uq_signing_keys_next", "purpose", unique=True, postgresql_where=sa.text("state = 'next'")),
    sa.Index(
        "uq_signing_keys_current", "purpose", unique=True, postgresql_where=sa.text("state = 'current'")
    ),
)

revoked_tokens = sa.Table(
    "revoked_tokens",
    metadata,
    sa.Column("jti", sa.Text, primary_key=True),
    instant("expires_at", nullable=False, index=True),
)

audit_events = sa.Table(
    "audit_events",
    metadata,
    id_column(),
    sa.Column("organization_id", sa.ForeignKey("organizations.id")),
    required("actor_kind", sa.Text),
    required("actor_id", sa.Uuid),
    required("action", sa.Text),
    required("resource_kind", sa.Text),
    required("resource_id", sa.Text),
    required("details", JSONB, server_default=sa.text("'{}'::jsonb")),
    sa.Column("request_id", sa.Text),
    instant("at", nullable=False, server_default=sa.func.now()),
    sa.Column("credential_id", sa.Uuid),
    sa.Column("client_address", sa.Text),
    sa.Index("ix_audit_events_organization_id_id", "organization_id", "id"),
)
