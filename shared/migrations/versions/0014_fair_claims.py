"""Imports and deliveries that may be claimed now, in the order in which organizations take turns."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

# Rows that wait for a later attempt, or are leased, are not in line; each queue has one index for either.
_QUEUES = {
    "media_imports": ("distribution_id", "Queued", "Fetching"),
    "deliveries": ("destination_id", "Waiting", "Sending"),
}


def upgrade() -> None:
    """Add the mark of what may be claimed; what is due later has to wait for it."""
    for table, (member, waiting, leased) in _QUEUES.items():
        op.add_column(
            table, sa.Column("is_ready", sa.Boolean, nullable=False, server_default=sa.text("true"))
        )
        op.execute(
            f"UPDATE {table} SET is_ready = false WHERE state = '{waiting}' AND due_at > now()"  # noqa: S608
        )
        op.create_index(
            f"ix_{table}_ready",
            table,
            ["organization_id", member, "due_at"],
            postgresql_where=sa.text(f"state = '{waiting}' AND is_ready"),
        )
        op.create_index(
            f"ix_{table}_later",
            table,
            ["due_at"],
            postgresql_where=sa.text(f"state = '{leased}' OR (state = '{waiting}' AND NOT is_ready)"),
        )
