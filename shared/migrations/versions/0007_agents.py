"""A2A tasks, their events, schedules and push notification configurations."""

from __future__ import annotations

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the tables."""


def downgrade() -> None:
    """Drop the tables."""
