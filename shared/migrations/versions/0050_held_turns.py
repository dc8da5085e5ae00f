"""An index for the turns of organizations whose held imports are tried again."""

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0049"


def upgrade() -> None:
    """Make the index."""
    op.create_index(
        "ix_media_imports_held_turns",
        "media_imports",
        ["organization_id", "due_at"],
        postgresql_where=sa.text("state = 'Held'"),
    )
