"""Create the tables of identity."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

from shared.migrations.functions import load_function

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

NOW = sa.text("now()")
INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create everything; the database is empty."""
    _create_people()
    _create_agents()
    _create_credentials()
    _create_distributions()
    _create_signing()
    _create_audit()


def _create_people() -> None:
    op.create_table(
        "organizations",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("suspended_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_organizations"),
    )
    op.create_table(
        "users",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("is_operator", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("active_organization_id", sa.Uuid),
        sa.Column("disabled_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_users"),
        _references("users", "active_organization_id", "organizations"),
    )
    op.create_index("uq_users_email", "users", [sa.text("lower(email)")], unique=True)
    op.create_table(
        "memberships",
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("user_id", sa.Uuid, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("organization_id", "user_id", name="pk_memberships"),
        _references("memberships", "organization_id", "organizations"),
        _references("memberships", "user_id", "users"),
        sa.CheckConstraint("role IN ('Member', 'WorkspaceAdmin', 'WorkspaceOwner')", name="role"),
    )
    op.create_index("ix_memberships_user_id", "memberships", ["user_id"])


def _create_agents() -> None:
    op.create_table(
        "identities",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("disabled_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_identities"),
        _references("identities", "organization_id", "organizations"),
        sa.CheckConstraint("kind IN ('PrincipalIdentity', 'DaemonIdentity')", name="kind"),
    )
    op.create_index("ix_identities_organization_id_id", "identities", ["organization_id", "id"])
    op.create_table(
        "deployments",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("client_id", sa.Uuid, nullable=False),
        sa.Column("daemon_identity_id", sa.Uuid, nullable=False),
        sa.Column("active_version_id", sa.Uuid),
        sa.Column("disabled_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_deployments"),
        _references("deployments", "organization_id", "organizations"),
        _references("deployments", "daemon_identity_id", "identities"),
        sa.UniqueConstraint("client_id", name="uq_deployments_client_id"),
        sa.UniqueConstraint("daemon_identity_id", name="uq_deployments_daemon_identity_id"),
        sa.CheckConstraint("kind IN ('Remote', 'GitHub')", name="kind"),
    )
    op.create_index("ix_deployments_organization_id_id", "deployments", ["organization_id", "id"])
    op.create_table(
        "versions",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("deployment_id", sa.Uuid, nullable=False),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("label", sa.Text),
        sa.Column("revoked_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_versions"),
        _references("versions", "deployment_id", "deployments"),
        sa.UniqueConstraint("deployment_id", "number", name="uq_versions_deployment_id_number"),
        sa.CheckConstraint("number > 0", name="number"),
    )
    op.create_foreign_key(
        "fk_deployments_active_version_id", "deployments", "versions", ["active_version_id"], ["id"]
    )


def _create_credentials() -> None:
    op.create_table(
        "role_bindings",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("subject_identity_id", sa.Uuid),
        sa.Column("subject_user_id", sa.Uuid),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("scope_kind", sa.Text, nullable=False),
        sa.Column("scope_id", sa.Uuid, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_role_bindings"),
        _references("role_bindings", "organization_id", "organizations"),
        _references("role_bindings", "subject_identity_id", "identities"),
        _references("role_bindings", "subject_user_id", "users"),
        sa.CheckConstraint("num_nonnulls(subject_identity_id, subject_user_id) = 1", name="one_subject"),
        sa.CheckConstraint(
            "role IN ('ProjectAgent', 'Member', 'WorkspaceAdmin', 'WorkspaceOwner')",
            name="role",
        ),
        sa.CheckConstraint("scope_kind IN ('Organization', 'Identity')", name="scope_kind"),
        sa.CheckConstraint(
            "scope_kind = 'Identity' OR scope_id = organization_id",
            name="organization_scope",
        ),
        sa.UniqueConstraint(
            "subject_identity_id",
            "subject_user_id",
            "role",
            "scope_id",
            name="uq_role_bindings_grant",
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_index("ix_role_bindings_organization_id_id", "role_bindings", ["organization_id", "id"])
    op.create_index("ix_role_bindings_subject_user_id", "role_bindings", ["subject_user_id"])
    op.create_table(
        "client_credentials",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("deployment_id", sa.Uuid, nullable=False),
        sa.Column("secret_hash", sa.LargeBinary, nullable=False),
        sa.Column("last4", sa.Text, nullable=False),
        sa.Column("expires_at", INSTANT),
        sa.Column("revoked_at", INSTANT),
        sa.Column("last_used_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_client_credentials"),
        _references("client_credentials", "deployment_id", "deployments"),
        sa.UniqueConstraint("secret_hash", name="uq_client_credentials_secret_hash"),
    )
    op.create_index("ix_client_credentials_deployment_id", "client_credentials", ["deployment_id"])
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("user_id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("last4", sa.Text, nullable=False),
        sa.Column("expires_at", INSTANT),
        sa.Column("revoked_at", INSTANT),
        sa.Column("last_used_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
        _references("api_keys", "user_id", "users"),
        _references("api_keys", "organization_id", "organizations"),
        sa.UniqueConstraint("hash", name="uq_api_keys_hash"),
    )
    op.create_index("ix_api_keys_user_id", "api_keys", ["user_id"])
    op.create_index("ix_api_keys_organization_id", "api_keys", ["organization_id"])


def _create_distributions() -> None:
    op.create_table(
        "distributions",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("networks", sa.ARRAY(sa.Text), nullable=False),
        sa.Column("principal_identity_id", sa.Uuid, nullable=False),
        sa.Column("deployment_id", sa.Uuid, nullable=False),
        sa.Column("token_hash", sa.LargeBinary, nullable=False),
        sa.Column("token_last4", sa.Text, nullable=False),
        sa.Column("previous_token_hash", sa.LargeBinary),
        sa.Column("previous_token_expires_at", INSTANT),
        sa.Column("webhook_secret_encrypted", sa.LargeBinary, nullable=False),
        sa.Column("previous_webhook_secret_encrypted", sa.LargeBinary),
        sa.Column("previous_webhook_secret_expires_at", INSTANT),
        sa.Column("media_retention_days", sa.Integer, nullable=False, server_default=sa.text("30")),
        sa.Column("disabled_at", INSTANT),
        sa.Column("last_used_at", INSTANT),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_distributions"),
        _references("distributions", "organization_id", "organizations"),
        _references("distributions", "principal_identity_id", "identities"),
        _references("distributions", "deployment_id", "deployments"),
        sa.UniqueConstraint("token_hash", name="uq_distributions_token_hash"),
        sa.UniqueConstraint("previous_token_hash", name="uq_distributions_previous_token_hash"),
        sa.CheckConstraint("media_retention_days BETWEEN 1 AND 3650", name="media_retention_days"),
    )
    op.create_index("ix_distributions_organization_id_id", "distributions", ["organization_id", "id"])
    op.create_index("ix_distributions_principal_identity_id", "distributions", ["principal_identity_id"])
    op.create_index("ix_distributions_deployment_id", "distributions", ["deployment_id"])


def _create_signing() -> None:
    op.create_table(
        "signing_keys",
        sa.Column("kid", sa.Text, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("private_jwk_encrypted", sa.LargeBinary, nullable=False),
        sa.Column("created_at", INSTANT, nullable=False, server_default=NOW),
        sa.Column("activated_at", INSTANT),
        sa.Column("retired_at", INSTANT),
        sa.PrimaryKeyConstraint("kid", name="pk_signing_keys"),
        sa.CheckConstraint("purpose IN ('access', 'attribution')", name="purpose"),
        sa.CheckConstraint("state IN ('next', 'current', 'previous')", name="state"),
    )
    for state in ("next", "current"):
        op.create_index(
            f"uq_signing_keys_{state}",
            "signing_keys",
            ["purpose"],
            unique=True,
            postgresql_where=sa.text(f"state = '{state}'"),
        )
    op.create_table(
        "revoked_tokens",
        sa.Column("jti", sa.Text, nullable=False),
        sa.Column("expires_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("jti", name="pk_revoked_tokens"),
    )
    op.create_index("ix_revoked_tokens_expires_at", "revoked_tokens", ["expires_at"])


def _create_audit() -> None:
    op.create_table(
        "audit_events",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid),
        sa.Column("actor_kind", sa.Text, nullable=False),
        sa.Column("actor_id", sa.Uuid, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("resource_kind", sa.Text, nullable=False),
        sa.Column("resource_id", sa.Text, nullable=False),
        sa.Column("details", JSONB, nullable=False, server_default=sa.text("'{}'::jsonb")),
        sa.Column("request_id", sa.Text),
        sa.Column("at", INSTANT, nullable=False, server_default=NOW),
        sa.PrimaryKeyConstraint("id", name="pk_audit_events"),
        _references("audit_events", "organization_id", "organizations"),
    )
    op.create_index("ix_audit_events_organization_id_id", "audit_events", ["organization_id", "id"])
    load_function(op.get_bind(), "refuse_audit_change")
    op.execute(
        "CREATE TRIGGER append_only BEFORE UPDATE OR DELETE ON audit_events "
        "FOR EACH ROW EXECUTE FUNCTION refuse_audit_change()"
    )


def _references(table: str, column: str, target: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint([column], [f"{target}.id"], name=f"fk_{table}_{column}")
