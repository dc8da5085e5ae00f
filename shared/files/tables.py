"""The rows of the file domain.

File, version and blob are three rows with different lives: a blob's row goes with its bytes, the others stay to
answer what they were.
"""

from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    SmallInteger,
    String,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)

from shared.schema import created_at, id_column, instant, metadata

files = Table(
    "files",
    metadata,
    id_column(),
    Column("organization_id", Uuid, nullable=False),
    Column("payer_id", Uuid, nullable=False),
    Column("purpose", String, nullable=False),
    Column("owner_kind", String, nullable=False),
    Column("owner_id", Uuid, nullable=False),
    Column("state", String, nullable=False),
    Column("current_version_id", Uuid, nullable=False),
    Column("revision", Integer, nullable=False),
    instant("retention_expires_at"),
    instant("ended_at"),
    created_at(),
    CheckConstraint("state IN ('Available', 'Expired', 'Deleted')", name="state"),
    CheckConstraint("purpose IN ('AgentArtifact', 'MessagingMedia')", name="purpose"),
    CheckConstraint("(state = 'Available') = (ended_at IS NULL)", name="ended"),
    CheckConstraint("revision >= 1", name="revision"),
    Index("ix_files_listed_by_owner", "owner_id", "purpose", "state", "id"),
    Index("ix_files_listed_by_organization", "organization_id", "purpose", "state", "id"),
    Index(
        "ix_files_due",
        "retention_expires_at",
        postgresql_where=text("state = 'Available' AND retention_expires_at IS NOT NULL"),
    ),
    Index(
        "ix_files_due_by_organization",
        "organization_id",
        "retention_expires_at",
        postgresql_where=text("state = 'Available' AND retention_expires_at IS NOT NULL"),
    ),
    Index("ix_files_ended_at", "ended_at", postgresql_where=text("ended_at IS NOT NULL")),
)

versions = Table(
    "file_versions",
    metadata,
    id_column(),
    Column("file_id", Uuid, ForeignKey("files.id"), nullable=False),
    Column("revision", Integer, nullable=False),
    Column("file_name", String, nullable=False),
    Column("media_type", String, nullable=False),
    Column("byte_size", BigInteger, nullable=False),
    Column("content_sha256", LargeBinary(32), nullable=False),
    created_at(),
    UniqueConstraint("file_id", "revision"),
    # Rows are appended and never changed: a summary of each megabyte finds those of a few minutes, for next to
    # nothing.
    Index(
        "ix_file_versions_created_at",
        "created_at",
        postgresql_using="brin",
        postgresql_with={"autosummarize": "on"},
    ),
)

blobs = Table(
    "blobs",
    metadata,
    id_column("version_id"),
    Column("state", String, nullable=False),
    Column("byte_size", BigInteger, nullable=False),
    Column("upload_id", String),
    Column("checksum", String),
    Column("chunk_checksums", LargeBinary),
    # Whose turn it is while it waits to be placed; nobody's, for rows that nobody waits for.
    Column("organization_id", Uuid, nullable=False, server_default=text(f"'{UUID(int=0)}'")),
    instant("lease_until"),
    instant("verified_at", nullable=False, server_default=func.now()),
    instant("damaged_at"),
    created_at(),
    CheckConstraint("state IN ('receiving', 'staged', 'live', 'doomed')", name="state"),
    Index("ix_blobs_unread", "verified_at", postgresql_where=text("state = 'live'")),
    Index("ix_blobs_damaged", "damaged_at", postgresql_where=text("damaged_at IS NOT NULL")),
    Index("ix_blobs_staged", "created_at", postgresql_where=text("state = 'staged'")),
    Index(
        "ix_blobs_staged_by_organization",
        "organization_id",
        "created_at",
        postgresql_where=text("state = 'staged'"),
    ),
    Index("ix_blobs_doomed", "created_at", postgresql_where=text("state = 'doomed'")),
    Index("ix_blobs_receiving", "created_at", postgresql_where=text("state = 'receiving'")),
)

blob_stores = Table(
    "blob_stores",
    metadata,
    Column("number", SmallInteger, primary_key=True, autoincrement=False),
    Column("store_id", Uuid, nullable=False),
    Column("address", Text, nullable=False),
    created_at(),
    CheckConstraint("number = 1", name="one_row"),
)

operations = Table(
    "file_operations",
    metadata,
    Column("executor_id", Uuid, nullable=False),
    Column("kind", String, nullable=False),
    Column("operation_id", Uuid, nullable=False),
    Column("request_hash", LargeBinary(32), nullable=False),
    Column("content_hash", LargeBinary(32)),
    Column("file_id", Uuid, nullable=False),
    Column("version_id", Uuid, nullable=False),
    instant("retention_expires_at"),
    created_at(),
    PrimaryKeyConstraint("executor_id", "kind", "operation_id"),
    CheckConstraint("kind IN ('upload', 'replace', 'delete')", name="kind"),
    Index("ix_file_operations_created_at", "created_at"),
)

references = Table(
    "file_references",
    metadata,
    Column("file_id", Uuid, ForeignKey("files.id"), nullable=False),
    Column("kind", String, nullable=False),
    Column("reference_id", String, nullable=False),
    created_at(),
    PrimaryKeyConstraint("file_id", "kind", "reference_id"),
)

read_grants = Table(
    "read_grants",
    metadata,
    id_column(),
    Column("token_hash", LargeBinary(32), nullable=False),
    Column("file_id", Uuid, nullable=False),
    Column("version_id", Uuid, nullable=False),
    Column("created_by", Uuid, nullable=False),
    instant("access_expires_at", nullable=False),
    instant("revoked_at"),
    created_at(),
    UniqueConstraint("token_hash"),
    Index("ix_read_grants_access_expires_at", "access_expires_at"),
    Index("ix_read_grants_file_id_id", "file_id", "id"),
)
