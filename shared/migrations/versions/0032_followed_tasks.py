"""The distribution that is told what happens to a task."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """Add the column."""
    op.add_column("tasks", sa.Column("distribution_id", sa.Uuid))
