"""Behaviors of agents; A2A tasks, what was said and done in them, and where updates are posted to."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"

_NOW = sa.text("now()")
_INSTANT = sa.DateTime(timezone=True)
_ZERO = sa.text("0")
_STATES = (
    "'TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED',"
    " 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED', 'TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED'"
)
# A queue's indexes fill with rows that are done; vacuum after one row in a hundred, not in five.
_EAGER_VACUUM = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.05"


def upgrade() -> None:
    """Create the tables."""
    _create_behaviors()
    _create_tasks()
    _create_turns()
    _create_log()
    _create_requests()
    for table in ("tasks", "task_turns"):
        op.execute(f"ALTER TABLE {table} SET ({_EAGER_VACUUM})")


def _create_behaviors() -> None:
    op.create_table(
        "behaviors",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("deployment_id", sa.Uuid, sa.ForeignKey("deployments.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("instructions", sa.Text, nullable=False, server_default=sa.text("''")),
        sa.Column("script", sa.Text),
        _texts("tags"),
        _texts("examples"),
        _texts("input_modes"),
        _texts("output_modes"),
        sa.Column("extensions", sa.Text, nullable=False, server_default=sa.text("'[]'")),
        sa.Column("is_default", sa.Boolean, nullable=False),
        sa.Column("updated_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint("kind IN ('model', 'script')", name="kind"),
        sa.CheckConstraint("kind = 'script' OR script IS NULL", name="script"),
        sa.CheckConstraint("(kind = 'model') = (model IS NOT NULL)", name="model"),
        sa.UniqueConstraint("deployment_id", "name"),
    )
    op.create_index(
        "uq_behaviors_default",
        "behaviors",
        ["deployment_id"],
        unique=True,
        postgresql_where=sa.text("is_default"),
    )


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("context_id", sa.Text, nullable=False),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("deployment_id", sa.Uuid, nullable=False),
        sa.Column("caller_id", sa.Uuid, nullable=False),
        sa.Column("principal_id", sa.Uuid, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("status_message", sa.Integer),
        sa.Column("status_at", _INSTANT, nullable=False),
        sa.Column("is_visible", sa.Boolean, nullable=False),
        sa.Column("last_sequence", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("last_message", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("artifacts", sa.Text),
        sa.Column("has_events", sa.Boolean, nullable=False, server_default=sa.text("true")),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint(f"state IN ({_STATES})", name="state"),
    )
    scope = ["caller_id", "principal_id", "deployment_id"]
    op.create_index(
        "ix_tasks_listed",
        "tasks",
        [*scope, sa.text("status_at DESC"), sa.text("id DESC")],
        postgresql_where=sa.text("is_visible"),
    )
    op.create_index("ix_tasks_context", "tasks", [*scope, "context_id"])
    op.create_index("ix_tasks_status_at", "tasks", ["status_at"])
    ended = "'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED'"
    op.create_index(
        "ix_tasks_ended",
        "tasks",
        ["status_at"],
        postgresql_where=sa.text(f"has_events AND state IN ({ended})"),
    )
    op.create_table(
        "task_messages",
        _of_task(),
        sa.Column("number", sa.Integer, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.PrimaryKeyConstraint("task_id", "number"),
    )


def _create_turns() -> None:
    op.create_table(
        "task_turns",
        sa.Column("id", sa.Uuid, primary_key=True),
        _of_task(),
        sa.Column("message", sa.Integer, nullable=False),
        sa.Column("behavior_id", sa.Uuid, nullable=False),
        sa.Column("request", sa.Text, nullable=False),
        sa.Column("active_extensions", sa.ARRAY(sa.Text), nullable=False),
        sa.Column("owner_id", sa.Uuid),
        sa.Column("payer_id", sa.Uuid, nullable=False),
        sa.Column("distribution_id", sa.Uuid),
        sa.Column("transaction_id", sa.Text, nullable=False),
        sa.Column("reported_caller", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("outcome", sa.Text),
        sa.Column("reply", sa.Integer),
        sa.Column("lease_id", sa.Uuid),
        sa.Column("lease_until", _INSTANT),
        sa.Column("attempts", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("updates", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("has_spoken", sa.Boolean, nullable=False, server_default=sa.text("false")),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint("state IN ('queued', 'running', 'done')", name="state"),
        sa.CheckConstraint("(state = 'done') = (outcome IS NOT NULL)", name="outcome"),
        sa.CheckConstraint("(state = 'running') = (lease_id IS NOT NULL)", name="lease"),
        sa.UniqueConstraint("task_id", "message"),
    )
    op.create_index("ix_task_turns_task_id", "task_turns", ["task_id"])
    for state, column in (("queued", "created_at"), ("running", "lease_until")):
        op.create_index(
            f"ix_task_turns_{state}", "task_turns", [column], postgresql_where=sa.text(f"state = '{state}'")
        )


def _create_log() -> None:
    op.create_table(
        "task_events",
        _of_task(),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("event", sa.Text, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.PrimaryKeyConstraint("task_id", "sequence"),
        sa.CheckConstraint("kind IN ('status', 'artifact', 'message')", name="kind"),
    )


def _create_requests() -> None:
    op.create_table(
        "task_push_configurations",
        _of_task(),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("destination_id", sa.Uuid, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("scheme", sa.Text),
        sa.Column("address_encrypted", sa.LargeBinary, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.PrimaryKeyConstraint("task_id", "id"),
    )
    op.create_table(
        "send_operations",
        sa.Column("caller_id", sa.Uuid, nullable=False),
        sa.Column("principal_id", sa.Uuid, nullable=False),
        sa.Column("deployment_id", sa.Uuid, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("request_hash", sa.LargeBinary, nullable=False),
        sa.Column("turn_id", sa.Uuid, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.PrimaryKeyConstraint("caller_id", "principal_id", "deployment_id", "key"),
    )
    op.create_index("ix_send_operations_created_at", "send_operations", ["created_at"])


def _of_task() -> sa.Column[Any]:
    return sa.Column("task_id", sa.Uuid, sa.ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False)


def _texts(name: str) -> sa.Column[Any]:
    return sa.Column(name, sa.ARRAY(sa.Text), nullable=False, server_default=sa.text("'{}'::text[]"))
