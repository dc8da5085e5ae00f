"""The rows of imports, mirrored by migrations 0004 and 0014.

A row outlives its work for a while, so that a repeated push finds it. Its headers and location, secret or perishable,
are erased when it ends.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from shared.schema import created_at, id_column, instant, metadata

_WAITING = text("state IN ('Queued', 'Fetching')")
_ENDED = text("state IN ('Stored', 'Failed')")

media_imports = Table(
    "media_imports",
    metadata,
    id_column(),
    Column("distribution_id", Uuid, nullable=False),
    Column("organization_id", Uuid, nullable=False),
    Column("network", Text, nullable=False),
    Column("message_id", Text, nullable=False),
    Column("attachment_id", Text, nullable=False),
    Column("conversation_id", Text),
    Column("location", JSONB, nullable=False),
    Column("headers_encrypted", LargeBinary),
    Column("file_name", Text),
    Column("media_type", Text),
    Column("byte_size", BigInteger),
    Column("content_sha256", LargeBinary(32)),
    Column("request_hash", LargeBinary(32), nullable=False),
    Column("state", Text, nullable=False),
    Column("code", Text),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    instant("due_at", nullable=False, server_default=func.now()),
    Column("is_ready", Boolean, nullable=False, server_default=text("true")),
    Column("file_id", Uuid),
    Column("version_id", Uuid),
    instant("ended_at"),
    instant("forget_at"),
    created_at(),
    CheckConstraint("state IN ('Queued', 'Fetching', 'Stored', 'Failed')", name="state"),
    CheckConstraint("(state IN ('Stored', 'Failed')) = (ended_at IS NOT NULL)", name="ended"),
    CheckConstraint("(ended_at IS NULL) = (forget_at IS NULL)", name="forgotten"),
    CheckConstraint("(state = 'Stored') = (file_id IS NOT NULL AND version_id IS NOT NULL)", name="stored"),
    CheckConstraint("state <> 'Failed' OR code IS NOT NULL", name="failed"),
    CheckConstraint("ended_at IS NULL OR headers_encrypted IS NULL", name="headers"),
    UniqueConstraint(
        "distribution_id", "network", "message_id", "attachment_id", name="uq_media_imports_attachment"
    ),
    Index("ix_media_imports_distribution_id_id", "distribution_id", "id"),
    Index("ix_media_imports_due", "due_at", postgresql_where=_WAITING),
    Index(
        "ix_media_imports_ready",
        "organization_id",
        "distribution_id",
        "due_at",
        postgresql_where=text("state = 'Queued' AND is_ready"),
    ),
    Index(
        "ix_media_imports_later",
        "due_at",
        postgresql_where=text("state = 'Fetching' OR (state = 'Queued' AND NOT is_ready)"),
    ),
    Index("ix_media_imports_waiting", "distribution_id", postgresql_where=_WAITING),
    Index("ix_media_imports_fetching", "distribution_id", postgresql_where=text("state = 'Fetching'")),
    Index("ix_media_imports_ended", "distribution_id", "state", "id", postgresql_where=_ENDED),
    Index("ix_media_imports_forget_at", "forget_at", postgresql_where=text("forget_at IS NOT NULL")),
)
