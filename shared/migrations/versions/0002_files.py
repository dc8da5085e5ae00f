"""Files, their versions, blobs, operations, references and read grants."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

_NOW = sa.text("now()")
_INSTANT = sa.DateTime(timezone=True)
# Every end of a file leaves dead rows in small hot tables; vacuum after one row in a hundred, not in five.
_EAGER_VACUUM = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.05"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "files",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("payer_id", sa.Uuid, nullable=False),
        sa.Column("purpose", sa.String, nullable=False),
        sa.Column("owner_kind", sa.String, nullable=False),
        sa.Column("owner_id", sa.Uuid, nullable=False),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("current_version_id", sa.Uuid, nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("retention_expires_at", _INSTANT),
        sa.Column("ended_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint("state IN ('Available', 'Expired', 'Deleted')", name="state"),
        sa.CheckConstraint("purpose IN ('AgentArtifact', 'MessagingMedia')", name="purpose"),
        sa.CheckConstraint("(state = 'Available') = (ended_at IS NULL)", name="ended"),
        sa.CheckConstraint("revision >= 1", name="revision"),
    )
    op.create_index("ix_files_owner_id_id", "files", ["owner_id", "id"])
    op.create_index("ix_files_organization_id_id", "files", ["organization_id", "id"])
    op.create_index(
        "ix_files_due",
        "files",
        ["retention_expires_at"],
        postgresql_where=sa.text("state = 'Available' AND retention_expires_at IS NOT NULL"),
    )
    op.create_table(
        "file_versions",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("file_id", sa.Uuid, sa.ForeignKey("files.id"), nullable=False),
        sa.Column("revision", sa.Integer, nullable=False),
        sa.Column("file_name", sa.String, nullable=False),
        sa.Column("media_type", sa.String, nullable=False),
        sa.Column("byte_size", sa.BigInteger, nullable=False),
        sa.Column("content_sha256", sa.LargeBinary(32), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.UniqueConstraint("file_id", "revision"),
    )
    op.create_table(
        "blobs",
        sa.Column("version_id", sa.Uuid, primary_key=True),
        sa.Column("state", sa.String, nullable=False),
        sa.Column("byte_size", sa.BigInteger, nullable=False),
        sa.Column("upload_id", sa.String),
        sa.Column("checksum", sa.String),
        sa.Column("lease_until", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint("state IN ('receiving', 'staged', 'live', 'doomed')", name="state"),
    )
    for state in ("staged", "doomed", "receiving"):
        op.create_index(
            f"ix_blobs_{state}", "blobs", ["created_at"], postgresql_where=sa.text(f"state = '{state}'")
        )
    op.create_table(
        "file_operations",
        sa.Column("executor_id", sa.Uuid, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("operation_id", sa.Uuid, nullable=False),
        sa.Column("request_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("content_hash", sa.LargeBinary(32)),
        sa.Column("file_id", sa.Uuid, nullable=False),
        sa.Column("version_id", sa.Uuid, nullable=False),
        sa.Column("retention_expires_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.PrimaryKeyConstraint("executor_id", "kind", "operation_id"),
        sa.CheckConstraint("kind IN ('upload', 'replace', 'delete')", name="kind"),
    )
    op.create_index("ix_file_operations_created_at", "file_operations", ["created_at"])
    op.create_table(
        "file_references",
        sa.Column("file_id", sa.Uuid, sa.ForeignKey("files.id"), nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("reference_id", sa.String, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.PrimaryKeyConstraint("file_id", "kind", "reference_id"),
    )
    op.create_table(
        "read_grants",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("token_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("file_id", sa.Uuid, nullable=False),
        sa.Column("version_id", sa.Uuid, nullable=False),
        sa.Column("created_by", sa.Uuid, nullable=False),
        sa.Column("access_expires_at", _INSTANT, nullable=False),
        sa.Column("revoked_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.UniqueConstraint("token_hash"),
    )
    op.create_index("ix_read_grants_access_expires_at", "read_grants", ["access_expires_at"])
    for table in ("files", "blobs", "file_operations", "read_grants"):
        op.execute(f"ALTER TABLE {table} SET ({_EAGER_VACUUM})")
