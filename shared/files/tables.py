"""The tables of the files domain.

A file, its versions and their blobs are separate rows, because their lifetimes differ. A blob's row is deleted after
its bytes. The rows of files and versions are kept as metadata.
"""

from uuid import UUID

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB, TSVECTOR

from shared.db.schema import created_at, id_column, instant, metadata, one_of, required

files = sa.Table(
    "files",
    metadata,
    id_column(),
    required("organization_id", sa.Uuid),
    required("payer_id", sa.Uuid),
    required("purpose", sa.String),
    required("owner_kind", sa.String),
    required("owner_id", sa.Uuid),
    required("state", sa.String),
    required("current_version_id", sa.Uuid),
    required("revision", sa.Integer),
    instant("retention_expires_at"),
    instant("ended_at"),
    created_at(),
    sa.Column("distribution_id", sa.Uuid),
    one_of("state", "Available", "Expired", "Deleted"),
    one_of("purpose", "AgentArtifact", "MessagingMedia"),
    sa.CheckConstraint("(state = 'Available') = (ended_at IS NULL)", name="ended"),
    sa.CheckConstraint("revision >= 1", name="revision"),
    sa.Index("ix_files_listed_by_owner", "owner_id", "purpose", "state", "id"),
    sa.Index("ix_files_listed_by_organization", "organization_id", "purpose", "state", "id"),
    sa.Index(
        "ix_files_due",
        "retention_expires_at",
        postgresql_where=sa.text("state = 'Available' AND retention_expires_at IS NOT NULL"),
    ),
    sa.Index(
        "ix_files_due_by_organization",
        "organization_id",
        "retention_expires_at",
        postgresql_where=sa.text("state = 'Available' AND retention_expires_at IS NOT NULL"),
    ),
    sa.Index("ix_files_ended_at", "ended_at", postgresql_where=sa.text("ended_at IS NOT NULL")),
)

versions = sa.Table(
    "file_versions",
    metadata,
    id_column(),
    required("file_id", sa.Uuid, sa.ForeignKey("files.id")),
    required("revision", sa.Integer),
    required("file_name", sa.String),
    required("media_type", sa.String),
    required("byte_size", sa.BigInteger),
    required("content_sha256", sa.LargeBinary(32)),
    created_at(),
    sa.UniqueConstraint("file_id", "revision"),
    # Use a BRIN index: rows are appended and never changed, so a small summary of each megabyte is enough to find the
    # rows of a few minutes.
    sa.Index(
        "ix_file_versions_created_at",
        "created_at",
        postgresql_using="brin",
        postgresql_with={"autosummarize": "on"},
    ),
)

# The index of words. A trigger of `file_versions` maintains it (`sql/files_note_words.sql`); `searching.py` reads it.
file_words = sa.Table(
    "file_words",
    metadata,
    id_column("file_id"),
    required("words", TSVECTOR),
    # Every search scans GIN's pending list, so keep it small (256 KiB).
    sa.Index(
        "ix_file_words_words",
        "words",
        postgresql_using="gin",
        postgresql_with={"gin_pending_list_limit": "256"},
    ),
)

blobs = sa.Table(
    "blobs",
    metadata,
    id_column("version_id"),
    required("state", sa.String),
    required("byte_size", sa.BigInteger),
    sa.Column("upload_id", sa.String),
    sa.Column("checksum", sa.String),
    sa.Column("chunk_checksums", sa.LargeBinary),
    # Organizations take turns in the placement. Rows that are not staged for a file have the zero UUID.
    required("organization_id", sa.Uuid, server_default=sa.text(f"'{UUID(int=0)}'")),
    instant("lease_until"),
    instant("verified_at", nullable=False, server_default=sa.func.now()),
    instant("damaged_at"),
    created_at(),
    one_of("state", "receiving", "staged", "live", "doomed"),
    sa.Index("ix_blobs_unread", "verified_at", postgresql_where=sa.text("state = 'live'")),
    sa.Index("ix_blobs_damaged", "damaged_at", postgresql_where=sa.text("damaged_at IS NOT NULL")),
    sa.Index("ix_blobs_staged", "created_at", postgresql_where=sa.text("state = 'staged'")),
    sa.Index(
        "ix_blobs_staged_by_organization",
        "organization_id",
        "created_at",
        postgresql_where=sa.text("state = 'staged'"),
    ),
    sa.Index("ix_blobs_doomed", "created_at", postgresql_where=sa.text("state = 'doomed'")),
    sa.Index("ix_blobs_receiving", "created_at", postgresql_where=sa.text("state = 'receiving'")),
)

# Ended files and uploads that have more blobs than one transaction marks for deletion. All versions of a file up to the
# revision `doomed_to` are already marked.
ended_content = sa.Table(
    "ended_content",
    metadata,
    id_column(),
    required("kind", sa.String),
    required("organization_id", sa.Uuid),
    required("doomed_to", sa.Integer, server_default="0"),
    created_at(),
    one_of("kind", "File", "Upload"),
    sa.Index("ix_ended_content_organization_id_id", "organization_id", "id"),
)

blob_stores = sa.Table(
    "blob_stores",
    metadata,
    sa.Column("number", sa.SmallInteger, primary_key=True, autoincrement=False),
    required("store_id", sa.Uuid),
    required("address", sa.Text),
    created_at(),
    required("is_used", sa.Boolean, server_default=sa.true()),
    sa.CheckConstraint("number IN (1, 2)", name="number"),
)

operations = sa.Table(
    "file_operations",
    metadata,
    required("executor_id", sa.Uuid),
    required("kind", sa.String),
    required("operation_id", sa.Uuid),
    required("request_hash", sa.LargeBinary(32)),
    sa.Column("content_hash", sa.LargeBinary(32)),
    required("file_id", sa.Uuid),
    required("version_id", sa.Uuid),
    instant("retention_expires_at"),
    created_at(),
    sa.PrimaryKeyConstraint("executor_id", "kind", "operation_id"),
    one_of("kind", "upload", "replace", "delete"),
    sa.Index("ix_file_operations_created_at", "created_at"),
)

resumable_uploads = sa.Table(
    "resumable_uploads",
    metadata,
    id_column(),
    required("state", sa.String),
    required("executor_id", sa.Uuid),
    required("kind", sa.String),
    required("operation_id", sa.Uuid),
    required("request_hash", sa.LargeBinary(32)),
    required("request", JSONB),
    sa.Column("attribution", JSONB),
    required("owner_id", sa.Uuid),
    required("organization_id", sa.Uuid),
    required("payer_id", sa.Uuid),
    required("file_name", sa.String),
    required("media_type", sa.String),
    sa.Column("content_sha256", sa.LargeBinary(32)),
    required("byte_size", sa.BigInteger),
    required("received_bytes", sa.BigInteger, server_default="0"),
    required("lease", sa.Uuid),
    instant("expires_at", nullable=False),
    instant("ended_at"),
    created_at(),
    one_of("state", "Receiving", "Finished", "Cancelled", "Expired"),
    sa.CheckConstraint("received_bytes BETWEEN 0 AND byte_size", name="received"),
    sa.Index(
        "ix_resumable_uploads_open",
        "executor_id",
        "kind",
        "operation_id",
        unique=True,
        postgresql_where=sa.text("state = 'Receiving'"),
    ),
    sa.Index("ix_resumable_uploads_due", "expires_at", postgresql_where=sa.text("state = 'Receiving'")),
    sa.Index(
        "ix_resumable_uploads_due_by_payer",
        "payer_id",
        "expires_at",
        postgresql_where=sa.text("state = 'Receiving'"),
    ),
    sa.Index("ix_resumable_uploads_ended_at", "ended_at", postgresql_where=sa.text("ended_at IS NOT NULL")),
)

upload_pieces = sa.Table(
    "upload_pieces",
    metadata,
    id_column("blob_id"),
    required("upload_id", sa.Uuid, sa.ForeignKey("resumable_uploads.id")),
    required("offset_bytes", sa.BigInteger),
    required("byte_size", sa.BigInteger),
    sa.UniqueConstraint("upload_id", "offset_bytes"),
)

references = sa.Table(
    "file_references",
    metadata,
    required("file_id", sa.Uuid, sa.ForeignKey("files.id")),
    required("kind", sa.String),
    required("reference_id", sa.String),
    created_at(),
    sa.PrimaryKeyConstraint("file_id", "kind", "reference_id"),
    sa.Index("ix_file_references_reference_id", "reference_id", "kind"),
)

read_grants = sa.Table(
    "read_grants",
    metadata,
    id_column(),
    required("token_hash", sa.LargeBinary(32)),
    required("file_id", sa.Uuid),
    required("version_id", sa.Uuid),
    required("created_by", sa.Uuid),
    instant("access_expires_at", nullable=False),
    instant("revoked_at"),
    created_at(),
    sa.UniqueConstraint("token_hash"),
    sa.Index("ix_read_grants_access_expires_at", "access_expires_at"),
    sa.Index("ix_read_grants_file_id_id", "file_id", "id"),
)
