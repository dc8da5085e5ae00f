"""Imports of inbound media."""

from __future__ import annotations

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables."""


def downgrade() -> None:
    """Drop the tables."""
