"""Resumable uploads, and the pieces of content that they have so far."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0029"
down_revision = "0028"

_OPEN = sa.text("state = 'Receiving'")


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "resumable_uploads",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("executor_id", sa.Uuid, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("operation_id", sa.Uuid, nullable=False),
        sa.Column("request_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("request", JSONB, nullable=False),
        sa.Column("attribution", JSONB),
        sa.Column("owner_id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("payer_id", sa.Uuid, nullable=False),
        sa.Column("file_name", sa.String, nullable=False),
        sa.Column("media_type", sa.String, nullable=False),
        sa.Column("content_sha256", sa.LargeBinary(32)),
        sa.Column("byte_size", sa.BigInteger, nullable=False),
        sa.Column("received_bytes", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("lease", sa.Uuid, nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint("state IN ('Receiving', 'Finished', 'Cancelled', 'Expired')", name="state"),
        sa.CheckConstraint("received_bytes BETWEEN 0 AND byte_size", name="received"),
    )
    op.create_index(
        "ix_resumable_uploads_open",
        "resumable_uploads",
        ["executor_id", "kind", "operation_id"],
        unique=True,
        postgresql_where=_OPEN,
    )
    op.create_index("ix_resumable_uploads_due", "resumable_uploads", ["expires_at"], postgresql_where=_OPEN)
    op.create_index(
        "ix_resumable_uploads_due_by_payer",
        "resumable_uploads",
        ["payer_id", "expires_at"],
        postgresql_where=_OPEN,
    )
    op.create_index(
        "ix_resumable_uploads_ended_at",
        "resumable_uploads",
        ["ended_at"],
        postgresql_where=sa.text("ended_at IS NOT NULL"),
    )
    op.create_table(
        "upload_pieces",
        sa.Column("blob_id", sa.Uuid, primary_key=True),
        sa.Column("upload_id", sa.Uuid, sa.ForeignKey("resumable_uploads.id"), nullable=False),
        sa.Column("offset_bytes", sa.BigInteger, nullable=False),
        sa.Column("byte_size", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("upload_id", "offset_bytes"),
    )
