"""Turns are claimed in turn: their rows say whose agent answers, and which one of its task is next."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"

NOBODY = "00000000-0000-0000-0000-000000000000"


def upgrade() -> None:
    """Add the columns, and fill them in for what is not done; a front of the release before leaves them out."""
    op.add_column("task_turns", sa.Column("deployment_id", sa.Uuid, nullable=False, server_default=NOBODY))
    op.add_column("task_turns", sa.Column("is_next", sa.Boolean, nullable=False, server_default=sa.true()))
    op.execute(
        "UPDATE task_turns SET deployment_id = tasks.deployment_id, is_next = NOT EXISTS ("
        " SELECT FROM task_turns earlier WHERE earlier.task_id = task_turns.task_id"
        " AND earlier.message < task_turns.message AND earlier.state <> 'done')"
        " FROM tasks WHERE tasks.id = task_turns.task_id AND task_turns.state <> 'done'"
    )
    op.create_index(
        "ix_task_turns_ready",
        "task_turns",
        ["payer_id", "deployment_id", "created_at"],
        postgresql_where=sa.text("state = 'queued' AND is_next"),
    )
    op.create_index(
        "ix_task_turns_behind",
        "task_turns",
        ["created_at"],
        postgresql_where=sa.text("state = 'queued' AND NOT is_next"),
    )
    op.drop_index("ix_task_turns_queued", "task_turns")
