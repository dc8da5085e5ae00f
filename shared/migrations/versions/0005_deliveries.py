"""Signed messages to other services, until they have arrived."""

from __future__ import annotations

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables."""


def downgrade() -> None:
    """Drop the tables."""
