"""Settings of messaging networks, by distribution."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "network_settings",
        sa.Column("distribution_id", sa.Uuid, sa.ForeignKey("distributions.id"), primary_key=True),
        sa.Column("network", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value_encrypted", sa.LargeBinary, nullable=False),
        sa.Column("last4", sa.Text, nullable=False),
        sa.Column("previous_encrypted", sa.LargeBinary),
        sa.Column("previous_expires_at", _INSTANT),
        sa.Column("changed_at", _INSTANT, nullable=False, server_default=sa.text("now()")),
        sa.CheckConstraint("(previous_encrypted IS NULL) = (previous_expires_at IS NULL)", name="previous"),
    )
