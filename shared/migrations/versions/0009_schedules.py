"""Schedules of agents, and the runs they made."""

from __future__ import annotations

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Create the tables."""


def downgrade() -> None:
    """Drop the tables."""
