"""Endpoints of deployments that answer messages themselves, and the kind of behavior that sends them there."""

import sqlalchemy as sa
from alembic import op

revision = "0026"
down_revision = "0025"

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table, and let behaviors be of the kind `remote`."""
    op.drop_constraint("ck_behaviors_kind", "behaviors")
    op.create_check_constraint("kind", "behaviors", "kind IN ('model', 'script', 'remote')")
    op.create_table(
        "deployment_endpoints",
        sa.Column("deployment_id", sa.Uuid, sa.ForeignKey("deployments.id"), primary_key=True),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("card_url", sa.Text),
        sa.Column("interface_override", sa.Text),
        sa.Column("credential_header", sa.Text),
        sa.Column("credential_encrypted", sa.LargeBinary),
        sa.Column("resends", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("binding", sa.Text),
        sa.Column("interface_url", sa.Text),
        sa.Column("tenant", sa.Text),
        sa.Column("streams", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("has_list_tasks", sa.Boolean),
        sa.Column("card", sa.Text),
        sa.Column("etag", sa.Text),
        sa.Column("problem", sa.Text),
        sa.Column("checked_at", _INSTANT),
        sa.Column("next_check_at", _INSTANT, nullable=False, server_default=sa.text("now()"), index=True),
        sa.Column("updated_at", _INSTANT, nullable=False, server_default=sa.text("now()")),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=sa.text("now()")),
        sa.CheckConstraint("(credential_header IS NULL) = (credential_encrypted IS NULL)", name="credential"),
        sa.CheckConstraint("binding IN ('http+json', 'jsonrpc')", name="binding"),
        sa.CheckConstraint("(binding IS NULL) = (interface_url IS NULL)", name="interface"),
    )
    due = ["organization_id", "next_check_at"]
    op.create_index("ix_deployment_endpoints_due", "deployment_endpoints", due)
