"""Indexes to sum what one key or one deployment has spent in all."""

import sqlalchemy as sa
from alembic import op

revision = "0042"
down_revision = "0041"


def upgrade() -> None:
    """Make the indexes."""
    for column in ("api_key_id", "deployment_id"):
        is_named = sa.text(f"{column} IS NOT NULL")
        op.create_index(f"ix_usage_days_{column}", "usage_days", [column, "day"], postgresql_where=is_named)
