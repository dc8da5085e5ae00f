"""The organization of content that waits to be placed, so that organizations take turns."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"

_NOBODY = sa.text("'00000000-0000-0000-0000-000000000000'")


def upgrade() -> None:
    """Add the column, with nobody in it, and index it for what waits."""
    op.add_column("blobs", sa.Column("organization_id", sa.Uuid, nullable=False, server_default=_NOBODY))
    op.create_index(
        "ix_blobs_staged_by_organization",
        "blobs",
        ["organization_id", "created_at"],
        postgresql_where=sa.text("state = 'staged'"),
    )
