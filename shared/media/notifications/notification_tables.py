"""Tables of notification endpoints and of files with an expiry to notify; migrations 0005 and 0020."""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from shared.db.schema import created_at, instant, metadata

notification_endpoints = sa.Table(
    "notification_endpoints",
    metadata,
    sa.Column("distribution_id", sa.ForeignKey("distributions.id"), primary_key=True),
    sa.Column("organization_id", sa.Uuid, nullable=False),
    sa.Column("url_encrypted", sa.LargeBinary, nullable=False),
    instant("disabled_at"),
    created_at(),
)

expiring_media = sa.Table(
    "expiring_media",
    metadata,
    sa.Column("file_id", sa.Uuid, primary_key=True),
    sa.Column("distribution_id", sa.Uuid, nullable=False),
    sa.Column("details", JSONB, nullable=False),
    instant("expires_at", nullable=False),
    sa.Index("ix_expiring_media_expires_at", "expires_at"),
    sa.Index("ix_expiring_media_distribution_id_expires_at", "distribution_id", "expires_at"),
)
