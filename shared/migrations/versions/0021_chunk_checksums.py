"""Checksums of stored content chunk by chunk; of what was stored before, the scrub makes them."""

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Add the column, empty."""
    op.add_column("blobs", sa.Column("chunk_checksums", sa.LargeBinary))
