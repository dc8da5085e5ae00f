"""Notification endpoints, and the files whose expiry is still to be notified; migrations 0005 and 0020."""

from sqlalchemy import Column, ForeignKey, Index, LargeBinary, Table, Uuid
from sqlalchemy.dialects.postgresql import JSONB

from shared.schema import created_at, instant, metadata

notification_endpoints = Table(
    "notification_endpoints",
    metadata,
    Column("distribution_id", ForeignKey("distributions.id"), primary_key=True),
    Column("organization_id", Uuid, nullable=False),
    Column("url_encrypted", LargeBinary, nullable=False),
    instant("disabled_at"),
    created_at(),
)

expiring_media = Table(
    "expiring_media",
    metadata,
    Column("file_id", Uuid, primary_key=True),
    Column("distribution_id", Uuid, nullable=False),
    Column("details", JSONB, nullable=False),
    instant("expires_at", nullable=False),
    Index("ix_expiring_media_expires_at", "expires_at"),
    Index("ix_expiring_media_distribution_id_expires_at", "distribution_id", "expires_at"),
)
