"""Imports of inbound media."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0004"
down_revision = "0003"

_NOW = sa.text("now()")
_INSTANT = sa.DateTime(timezone=True)
_WAITING = sa.text("state IN ('Queued', 'Fetching')")
# A queue's index fills with rows that are no longer due; vacuum after one row in a hundred, not in five.
_EAGER_VACUUM = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.05"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "media_imports",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("distribution_id", sa.Uuid, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("attachment_id", sa.Text, nullable=False),
        sa.Column("conversation_id", sa.Text),
        sa.Column("location", JSONB, nullable=False),
        sa.Column("headers_encrypted", sa.LargeBinary),
        sa.Column("file_name", sa.Text),
        sa.Column("media_type", sa.Text),
        sa.Column("byte_size", sa.BigInteger),
        sa.Column("content_sha256", sa.LargeBinary(32)),
        sa.Column("request_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("due_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.Column("file_id", sa.Uuid),
        sa.Column("version_id", sa.Uuid),
        sa.Column("ended_at", _INSTANT),
        sa.Column("forget_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint("state IN ('Queued', 'Fetching', 'Stored', 'Failed')", name="state"),
        sa.CheckConstraint("(state IN ('Stored', 'Failed')) = (ended_at IS NOT NULL)", name="ended"),
        sa.CheckConstraint("(ended_at IS NULL) = (forget_at IS NULL)", name="forgotten"),
        sa.CheckConstraint(
            "(state = 'Stored') = (file_id IS NOT NULL AND version_id IS NOT NULL)", name="stored"
        ),
        sa.CheckConstraint("state <> 'Failed' OR code IS NOT NULL", name="failed"),
        sa.CheckConstraint("ended_at IS NULL OR headers_encrypted IS NULL", name="headers"),
        sa.UniqueConstraint(
            "distribution_id",
            "network",
            "message_id",
            "attachment_id",
            name="uq_media_imports_attachment",
        ),
    )
    op.create_index("ix_media_imports_distribution_id_id", "media_imports", ["distribution_id", "id"])
    op.create_index("ix_media_imports_due", "media_imports", ["due_at"], postgresql_where=_WAITING)
    op.create_index(
        "ix_media_imports_waiting", "media_imports", ["distribution_id"], postgresql_where=_WAITING
    )
    op.create_index(
        "ix_media_imports_fetching",
        "media_imports",
        ["distribution_id"],
        postgresql_where=sa.text("state = 'Fetching'"),
    )
    op.create_index(
        "ix_media_imports_failed",
        "media_imports",
        ["distribution_id", "id"],
        postgresql_where=sa.text("state = 'Failed'"),
    )
    op.create_index(
        "ix_media_imports_forget_at",
        "media_imports",
        ["forget_at"],
        postgresql_where=sa.text("forget_at IS NOT NULL"),
    )
    op.execute(f"ALTER TABLE media_imports SET ({_EAGER_VACUUM})")
