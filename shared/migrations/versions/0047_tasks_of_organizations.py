"""An index for the list of an organization's tasks, by state."""

import sqlalchemy as sa
from alembic import op

revision = "0047"
down_revision = "0046"


def upgrade() -> None:
    """Make the index."""
    op.create_index(
        "ix_tasks_of_organization",
        "tasks",
        ["organization_id", "state", sa.text("status_at DESC"), sa.text("id DESC")],
        postgresql_where=sa.text("is_visible"),
    )
