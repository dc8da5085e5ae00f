"""The table of messages that distributions received for their agents, mirrored by migrations 0028 and 0055.

A row stores the network's message id, so that the message is routed once. The content is deleted when the message is
routed.
"""

import sqlalchemy as sa

from shared.a2a.exact_json import ExactJson
from shared.db.schema import created_at, id_column, instant, metadata, one_of, required

_WAITING = sa.text("state = 'Waiting'")

distribution_messages = sa.Table(
    "distribution_messages",
    metadata,
    id_column(),
    required("distribution_id", sa.ForeignKey("distributions.id")),
    required("organization_id", sa.Uuid),
    required("network", sa.Text),
    required("message_id", sa.Text),
    sa.Column("conversation_id", sa.Text),
    required("context_id", sa.Text),
    sa.Column("request", ExactJson),
    required("request_hash", sa.LargeBinary(32)),
    required("imports", sa.ARRAY(sa.Uuid)),
    required("state", sa.Text),
    sa.Column("code", sa.Text),
    required("task_id", sa.Uuid),
    sa.Column("turn_id", sa.Uuid),
    instant("due_at", nullable=False, server_default=sa.func.now()),
    instant("ended_at"),
    instant("forget_at"),
    created_at(),
    one_of("state", "Waiting", "Routed", "Refused"),
    sa.CheckConstraint("(state = 'Waiting') = (ended_at IS NULL)", name="ended"),
    sa.CheckConstraint("(ended_at IS NULL) = (forget_at IS NULL)", name="forgotten"),
    sa.CheckConstraint("(state = 'Waiting') = (request IS NOT NULL)", name="request"),
    sa.CheckConstraint("(state = 'Routed') = (turn_id IS NOT NULL)", name="turn"),
    sa.CheckConstraint("(state = 'Refused') = (code IS NOT NULL)", name="code"),
    # Ensures that repeated and concurrent pushes of a message have one row.
    sa.UniqueConstraint("distribution_id", "network", "message_id", name="uq_distribution_messages_message"),
    sa.Index("ix_distribution_messages_due", "due_at", postgresql_where=_WAITING),
    # The fair query takes the first due messages of each organization.
    sa.Index("ix_distribution_messages_due_of_each", "organization_id", "due_at", postgresql_where=_WAITING),
    # Finds an earlier waiting message of the conversation.
    sa.Index(
        "ix_distribution_messages_in_order",
        "distribution_id",
        "context_id",
        "created_at",
        "id",
        postgresql_where=_WAITING,
    ),
    sa.Index("ix_distribution_messages_task_id", "task_id", "id"),
    sa.Index(
        "ix_distribution_messages_forget_at", "forget_at", postgresql_where=sa.text("forget_at IS NOT NULL")
    ),
)
