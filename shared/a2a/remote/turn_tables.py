"""The table of turns that were sent on to an agent's own server, mirrored by migration 0030.

`sent_at` is written before the message leaves, and taken back when it did not. `remote_task_id` is the agent's task,
known from its first answer, and `remote_context_id` the context in which it put it. A turn is open until nothing is
to be done any more about the agent's task. `updates_seen` is how many updates it had when its last worker died.
"""

import sqlalchemy as sa

from shared.db.schema import created_at, instant, metadata

remote_turns = sa.Table(
    "remote_turns",
    metadata,
    sa.Column("turn_id", sa.ForeignKey("task_turns.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("task_id", sa.Uuid, nullable=False, index=True),
    instant("sent_at"),
    sa.Column("remote_task_id", sa.Text),
    sa.Column("remote_context_id", sa.Text),
    sa.Column("updates_seen", sa.Integer, nullable=False, server_default=sa.text("0")),
    sa.Column("is_open", sa.Boolean, nullable=False, server_default=sa.text("true")),
    created_at(),
    sa.Index("ix_remote_turns_open", "created_at", postgresql_where=sa.text("is_open")),
)
