"""Whether a distribution sends the messages of its networks to its deployment's agent."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    """Add the setting."""
    op.add_column(
        "distributions",
        sa.Column("routes_messages", sa.Boolean, nullable=False, server_default=sa.text("false")),
    )
