"""Messages of a conversation in the order in which the database took them, whatever the clocks of fronts say."""

import sqlalchemy as sa
from alembic import op

revision = "0055"
down_revision = "0054"


def upgrade() -> None:
    """Make the index anew."""
    op.create_index(
        "ix_distribution_messages_in_order",
        "distribution_messages",
        ["distribution_id", "context_id", "created_at", "id"],
        postgresql_where=sa.text("state = 'Waiting'"),
    )
    op.drop_index("ix_distribution_messages_waiting", "distribution_messages")
