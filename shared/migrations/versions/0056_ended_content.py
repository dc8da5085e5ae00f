"""Files and resumable uploads that have ended, and hold more than one transaction hands to the collector."""

import sqlalchemy as sa
from alembic import op

revision = "0056"
down_revision = "0055"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "ended_content",
        sa.Column("id", sa.Uuid, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("doomed_to", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("id", name="pk_ended_content"),
        sa.CheckConstraint("kind IN ('File', 'Upload')", name=op.f("ck_ended_content_kind")),
    )
    op.create_index("ix_ended_content_organization_id_id", "ended_content", ["organization_id", "id"])
