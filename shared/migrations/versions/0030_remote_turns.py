"""Turns that were sent on to an agent's own server."""

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "remote_turns",
        sa.Column("turn_id", sa.Uuid, sa.ForeignKey("task_turns.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("task_id", sa.Uuid, nullable=False, index=True),
        sa.Column("sent_at", _INSTANT),
        sa.Column("remote_task_id", sa.Text),
        sa.Column("remote_context_id", sa.Text),
        sa.Column("updates_seen", sa.Integer, nullable=False, server_default=sa.text("0")),
        sa.Column("is_open", sa.Boolean, nullable=False, server_default=sa.text("true")),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=sa.text("now()")),
    )
    op.create_index(
        "ix_remote_turns_open", "remote_turns", ["created_at"], postgresql_where=sa.text("is_open")
    )
