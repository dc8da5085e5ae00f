"""The mark of imports that a message waits for."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Add the mark, and find those that have ended."""
    op.add_column(
        "media_imports", sa.Column("is_awaited", sa.Boolean, nullable=False, server_default=sa.text("false"))
    )
    op.create_index(
        "ix_media_imports_awaited",
        "media_imports",
        ["id"],
        postgresql_where=sa.text("is_awaited AND ended_at IS NOT NULL"),
    )
