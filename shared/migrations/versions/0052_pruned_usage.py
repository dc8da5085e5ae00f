"""Up to when usage records are pruned, and what those that are gone came to."""

import sqlalchemy as sa
from alembic import op

revision = "0052"
down_revision = "0051"


def upgrade() -> None:
    """Make the table and the mark; nothing is pruned yet."""
    op.add_column(
        "usage_rollup",
        sa.Column(
            "pruned_to", sa.DateTime(timezone=True), nullable=False, server_default=sa.text("'-infinity'")
        ),
    )
    op.create_table(
        "pruned_usage",
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("budget_id", sa.Uuid),
        sa.Column("starts_at", sa.DateTime(timezone=True)),
        sa.Column("amount", sa.Numeric(40, 0), nullable=False),
        sa.UniqueConstraint(
            "organization_id",
            "budget_id",
            "starts_at",
            name="uq_pruned_usage_of_organization",
            postgresql_nulls_not_distinct=True,
        ),
        sa.CheckConstraint(
            "(budget_id IS NULL) = (starts_at IS NULL)", name=op.f("ck_pruned_usage_budgeted")
        ),
    )
