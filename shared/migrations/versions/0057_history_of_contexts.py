"""Find the newest tasks of a context without a look at all others."""

import sqlalchemy as sa
from alembic import op

revision = "0057"
down_revision = "0056"


def upgrade() -> None:
    """Make the index; the release before has no use for it, and no harm of it."""
    op.create_index(
        "ix_tasks_history",
        "tasks",
        [
            *("caller_id", "principal_id", "deployment_id", "context_id"),
            *(sa.text("created_at DESC"), sa.text("id DESC")),
        ],
    )
