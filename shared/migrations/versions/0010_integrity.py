"""When each blob was last read and compared with its digest, and which had rotted."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Add the columns; content stored before counts as read today."""
    op.add_column(
        "blobs",
        sa.Column("verified_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.add_column("blobs", sa.Column("damaged_at", sa.DateTime(timezone=True)))
    op.create_index("ix_blobs_unread", "blobs", ["verified_at"], postgresql_where=sa.text("state = 'live'"))
    op.create_index(
        "ix_blobs_damaged", "blobs", ["damaged_at"], postgresql_where=sa.text("damaged_at IS NOT NULL")
    )
