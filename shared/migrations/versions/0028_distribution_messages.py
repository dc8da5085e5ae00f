"""The messages that distributions received for their agents."""

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

_WAITING = sa.text("state = 'Waiting'")
TABLE = "distribution_messages"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        TABLE,
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("distribution_id", sa.Uuid, sa.ForeignKey("distributions.id"), nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("network", sa.Text, nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("conversation_id", sa.Text),
        sa.Column("context_id", sa.Text, nullable=False),
        sa.Column("request", sa.Text),
        sa.Column("request_hash", sa.LargeBinary(32), nullable=False),
        sa.Column("imports", sa.ARRAY(sa.Uuid), nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("task_id", sa.Uuid, nullable=False),
        sa.Column("turn_id", sa.Uuid),
        sa.Column("due_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.Column("ended_at", sa.DateTime(timezone=True)),
        sa.Column("forget_at", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint("state IN ('Waiting', 'Routed', 'Refused')", name="state"),
        sa.CheckConstraint("(state = 'Waiting') = (ended_at IS NULL)", name="ended"),
        sa.CheckConstraint("(ended_at IS NULL) = (forget_at IS NULL)", name="forgotten"),
        sa.CheckConstraint("(state = 'Waiting') = (request IS NOT NULL)", name="request"),
        sa.CheckConstraint("(state = 'Routed') = (turn_id IS NOT NULL)", name="turn"),
        sa.CheckConstraint("(state = 'Refused') = (code IS NOT NULL)", name="code"),
        sa.UniqueConstraint("distribution_id", "network", "message_id", name=f"uq_{TABLE}_message"),
    )
    op.create_index(f"ix_{TABLE}_due", TABLE, ["due_at"], postgresql_where=_WAITING)
    op.create_index(
        f"ix_{TABLE}_due_of_each", TABLE, ["organization_id", "due_at"], postgresql_where=_WAITING
    )
    op.create_index(
        f"ix_{TABLE}_waiting", TABLE, ["distribution_id", "context_id", "id"], postgresql_where=_WAITING
    )
    op.create_index(f"ix_{TABLE}_task_id", TABLE, ["task_id", "id"])
    op.create_index(
        f"ix_{TABLE}_forget_at", TABLE, ["forget_at"], postgresql_where=sa.text("forget_at IS NOT NULL")
    )
