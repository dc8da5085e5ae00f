"""The accounts of messaging networks that one app receives for, and the distribution of each."""

import sqlalchemy as sa
from alembic import op

revision = "0051"
down_revision = "0050"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "network_accounts",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("distribution_id", sa.Uuid, sa.ForeignKey("distributions.id"), nullable=False),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("target_distribution_id", sa.Uuid, sa.ForeignKey("distributions.id"), nullable=False),
        sa.Column("changed_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.UniqueConstraint("distribution_id", "network", "account", name="uq_network_accounts_account"),
    )
    op.create_index("ix_network_accounts_page", "network_accounts", ["distribution_id", "network", "id"])
    op.create_index("ix_network_accounts_target", "network_accounts", ["target_distribution_id"])
