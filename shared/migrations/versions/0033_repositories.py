"""Repositories of GitHub deployments, and the credentials that their workflows' tokens hang on."""

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    """Make the table and the mark."""
    op.add_column(
        "client_credentials",
        sa.Column("is_of_workflows", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "deployment_repositories",
        sa.Column("deployment_id", sa.Uuid, sa.ForeignKey("deployments.id"), primary_key=True),
        sa.Column("repository", sa.Text, nullable=False),
        sa.Column("ref", sa.Text),
        sa.Column("environment", sa.Text),
        sa.Column("repository_id", sa.Text),
        sa.Column("repository_owner_id", sa.Text),
        sa.Column("credential_id", sa.Uuid, sa.ForeignKey("client_credentials.id"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
