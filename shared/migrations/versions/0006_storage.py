"""What stored bytes cost over time."""

from __future__ import annotations

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables."""


def downgrade() -> None:
    """Drop the tables."""
