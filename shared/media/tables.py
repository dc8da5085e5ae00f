"""The table of imports, mirrored by migrations 0004, 0014, 0031 and 0048.

A row is kept for some days after its import has ended, so that a repeated push finds the import and a failed import
can be retried. The headers may be secret, and the location may expire, so both are deleted when the content is
stored. If the import failed, they are deleted with the row.
"""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from shared.db.schema import created_at, id_column, instant, metadata, one_of, required

_WAITING = sa.text("state IN ('Queued', 'Fetching')")
_HELD = sa.text("state = 'Held'")
_ENDED = sa.text("state IN ('Stored', 'Failed')")

media_imports = sa.Table(
    "media_imports",
    metadata,
    id_column(),
    required("distribution_id", sa.Uuid),
    required("organization_id", sa.Uuid),
    required("network", sa.Text),
    required("message_id", sa.Text),
    required("attachment_id", sa.Text),
    sa.Column("conversation_id", sa.Text),
    required("location", JSONB),
    sa.Column("headers_encrypted", sa.LargeBinary),
    sa.Column("file_name", sa.Text),
    sa.Column("media_type", sa.Text),
    sa.Column("byte_size", sa.BigInteger),
    sa.Column("content_sha256", sa.LargeBinary(32)),
    required("request_hash", sa.LargeBinary(32)),
    required("state", sa.Text),
    sa.Column("code", sa.Text),
    required("attempts", sa.Integer, server_default=sa.text("0")),
    required("forgiven_attempts", sa.Integer, server_default=sa.text("0")),
    instant("due_at", nullable=False, server_default=sa.func.now()),
    required("is_ready", sa.Boolean, server_default=sa.text("true")),
    sa.Column("file_id", sa.Uuid),
    sa.Column("version_id", sa.Uuid),
    required("is_awaited", sa.Boolean, server_default=sa.text("false")),
    instant("ended_at"),
    instant("forget_at"),
    created_at(),
    one_of("state", "Queued", "Fetching", "Held", "Stored", "Failed"),
    sa.CheckConstraint("(state IN ('Stored', 'Failed')) = (ended_at IS NOT NULL)", name="ended"),
    sa.CheckConstraint("(ended_at IS NULL) = (forget_at IS NULL)", name="forgotten"),
    sa.CheckConstraint(
        "(state = 'Stored') = (file_id IS NOT NULL AND version_id IS NOT NULL)", name="stored"
    ),
    sa.CheckConstraint("state NOT IN ('Failed', 'Held') OR code IS NOT NULL", name="failed"),
    sa.CheckConstraint("state <> 'Stored' OR headers_encrypted IS NULL", name="headers"),
    sa.UniqueConstraint(
        "distribution_id", "network", "message_id", "attachment_id", name="uq_media_imports_attachment"
    ),
    sa.Index("ix_media_imports_distribution_id_id", "distribution_id", "id"),
    sa.Index("ix_media_imports_due", "due_at", postgresql_where=_WAITING),
    sa.Index(
        "ix_media_imports_ready",
        "organization_id",
        "distribution_id",
        "due_at",
        postgresql_where=sa.text("state = 'Queued' AND is_ready"),
    ),
    sa.Index(
        "ix_media_imports_later",
        "due_at",
        postgresql_where=sa.text("state = 'Fetching' OR (state = 'Queued' AND NOT is_ready)"),
    ),
    sa.Index("ix_media_imports_waiting", "distribution_id", postgresql_where=_WAITING),
    sa.Index("ix_media_imports_fetching", "distribution_id", postgresql_where=sa.text("state = 'Fetching'")),
    sa.Index("ix_media_imports_held", "distribution_id", "created_at", postgresql_where=_HELD),
    sa.Index("ix_media_imports_held_turns", "organization_id", "due_at", postgresql_where=_HELD),
    sa.Index("ix_media_imports_held_due", "due_at", postgresql_where=_HELD),
    sa.Index("ix_media_imports_ended", "distribution_id", "state", "id", postgresql_where=_ENDED),
    sa.Index(
        "ix_media_imports_awaited", "id", postgresql_where=sa.text("is_awaited AND ended_at IS NOT NULL")
    ),
    sa.Index("ix_media_imports_forget_at", "forget_at", postgresql_where=sa.text("forget_at IS NOT NULL")),
)
