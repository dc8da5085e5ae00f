"""The tables of agents and their tasks, mirrored by migration 0007.

A change of a task locks the task's row first, so the rows of `task_events` have one order. `task_messages` has the
messages. `task_turns` has one row for each message that the agent must answer. `is_next` marks the first unfinished
turn of a task; workers claim only marked turns. JSON that clients see is stored as text (`exact_json.py`).
"""

from uuid import UUID

import sqlalchemy as sa

from shared.a2a.exact_json import ExactJson
from shared.db.schema import created_at, id_column, instant, metadata, one_of, required

_NO_TEXTS = sa.text("'{}'::text[]")
_STATES = (
    "'TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED',"
    " 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED', 'TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED'"
)

_SCOPE = ("caller_id", "principal_id", "deployment_id")
_LAST_CHANGED = (sa.text("status_at DESC"), sa.text("id DESC"))
_VISIBLE = sa.text("is_visible")

ENDED_STATES = "'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED'"

behaviors = sa.Table(
    "behaviors",
    metadata,
    id_column(),
    required("deployment_id", sa.ForeignKey("deployments.id")),
    required("name", sa.Text),
    required("kind", sa.Text),
    required("description", sa.Text),
    sa.Column("model", sa.Text),
    required("instructions", sa.Text, server_default=sa.text("''")),
    sa.Column("script", sa.Text),
    required("tags", sa.ARRAY(sa.Text), server_default=_NO_TEXTS),
    required("examples", sa.ARRAY(sa.Text), server_default=_NO_TEXTS),
    required("input_modes", sa.ARRAY(sa.Text), server_default=_NO_TEXTS),
    required("output_modes", sa.ARRAY(sa.Text), server_default=_NO_TEXTS),
    required("extensions", ExactJson, server_default=sa.text("'[]'")),
    required("is_default", sa.Boolean),
    instant("updated_at", nullable=False, server_default=sa.text("now()")),
    created_at(),
    one_of("kind", "model", "script", "remote"),
    sa.CheckConstraint("kind = 'script' OR script IS NULL", name="script"),
    sa.CheckConstraint("(kind = 'model') = (model IS NOT NULL)", name="model"),
    sa.UniqueConstraint("deployment_id", "name"),
    # Ensures at most one default for each deployment, even if two administrators set a default at the same time.
    sa.Index("uq_behaviors_default", "deployment_id", unique=True, postgresql_where=sa.text("is_default")),
)

tasks = sa.Table(
    "tasks",
    metadata,
    id_column(),
    required("context_id", sa.Text),
    required("organization_id", sa.Uuid),
    required("deployment_id", sa.Uuid),
    required("caller_id", sa.Uuid),
    required("principal_id", sa.Uuid),
    sa.Column("distribution_id", sa.Uuid),
    required("state", sa.Text),
    sa.Column("status_message", sa.Integer),
    instant("status_at", nullable=False),
    required("is_visible", sa.Boolean),
    required("last_sequence", sa.BigInteger, server_default=sa.text("0")),
    required("last_message", sa.Integer, server_default=sa.text("0")),
    sa.Column("artifacts", ExactJson),
    required("has_events", sa.Boolean, server_default=sa.text("true")),
    created_at(),
    sa.CheckConstraint(f"state IN ({_STATES})", name="state"),
    sa.Index("ix_tasks_listed", *_SCOPE, *_LAST_CHANGED, postgresql_where=_VISIBLE),
    sa.Index("ix_tasks_by_context", *_SCOPE, "context_id", *_LAST_CHANGED, postgresql_where=_VISIBLE),
    sa.Index("ix_tasks_history", *_SCOPE, "context_id", sa.text("created_at DESC"), sa.text("id DESC")),
    sa.Index("ix_tasks_by_state", *_SCOPE, "state", *_LAST_CHANGED, postgresql_where=_VISIBLE),
    sa.Index("ix_tasks_of_deployment", "deployment_id", *_LAST_CHANGED, postgresql_where=_VISIBLE),
    sa.Index(
        "ix_tasks_of_deployment_by_context",
        "deployment_id",
        "context_id",
        *_LAST_CHANGED,
        postgresql_where=_VISIBLE,
    ),
    sa.Index(
        "ix_tasks_of_deployment_by_state", "deployment_id", "state", *_LAST_CHANGED, postgresql_where=_VISIBLE
    ),
    sa.Index(
        "ix_tasks_of_organization", "organization_id", "state", *_LAST_CHANGED, postgresql_where=_VISIBLE
    ),
    sa.Index("ix_tasks_status_at", "status_at"),
    # Contains only tasks that still have events, so the purge of events does not read every ended task again.
    sa.Index(
        "ix_tasks_ended", "status_at", postgresql_where=sa.text(f"has_events AND state IN ({ENDED_STATES})")
    ),
)

task_messages = sa.Table(
    "task_messages",
    metadata,
    required("task_id", sa.ForeignKey("tasks.id", ondelete="CASCADE")),
    required("number", sa.Integer),
    required("message", ExactJson),
    created_at(),
    sa.PrimaryKeyConstraint("task_id", "number"),
)

task_turns = sa.Table(
    "task_turns",
    metadata,
    id_column(),
    required("task_id", sa.ForeignKey("tasks.id", ondelete="CASCADE"), index=True),
    required("message", sa.Integer),
    required("behavior_id", sa.Uuid),
    required("request", ExactJson),
    required("active_extensions", sa.ARRAY(sa.Text)),
    sa.Column("owner_id", sa.Uuid),
    required("payer_id", sa.Uuid),
    required("deployment_id", sa.Uuid, server_default=sa.text(f"'{UUID(int=0)}'")),
    sa.Column("distribution_id", sa.Uuid),
    required("transaction_id", sa.Text),
    sa.Column("reported_caller", ExactJson),
    required("state", sa.Text),
    required("is_next", sa.Boolean, server_default=sa.text("true")),
    sa.Column("outcome", sa.Text),
    sa.Column("reply", sa.Integer),
    sa.Column("lease_id", sa.Uuid),
    instant("lease_until"),
    required("attempts", sa.Integer, server_default=sa.text("0")),
    required("updates", sa.Integer, server_default=sa.text("0")),
    required("has_spoken", sa.Boolean, server_default=sa.text("false")),
    created_at(),
    one_of("state", "queued", "running", "done"),
    sa.CheckConstraint("(state = 'done') = (outcome IS NOT NULL)", name="outcome"),
    sa.CheckConstraint("(state = 'running') = (lease_id IS NOT NULL)", name="lease"),
    sa.UniqueConstraint("task_id", "message"),
    # Claims visit payers and their agents round robin, and take the oldest turn of each.
    sa.Index(
        "ix_task_turns_ready",
        "payer_id",
        "deployment_id",
        "created_at",
        postgresql_where=sa.text("state = 'queued' AND is_next"),
    ),
    sa.Index(
        "ix_task_turns_behind", "created_at", postgresql_where=sa.text("state = 'queued' AND NOT is_next")
    ),
    # The sweep of lost turns reads the expired leases.
    sa.Index("ix_task_turns_running", "lease_until", postgresql_where=sa.text("state = 'running'")),
)

task_events = sa.Table(
    "task_events",
    metadata,
    required("task_id", sa.ForeignKey("tasks.id", ondelete="CASCADE")),
    required("sequence", sa.BigInteger),
    required("kind", sa.Text),
    required("event", ExactJson),
    created_at(),
    sa.PrimaryKeyConstraint("task_id", "sequence"),
    one_of("kind", "status", "artifact", "message"),
)

task_push_configurations = sa.Table(
    "task_push_configurations",
    metadata,
    required("task_id", sa.ForeignKey("tasks.id", ondelete="CASCADE")),
    required("id", sa.Text),
    required("destination_id", sa.Uuid),
    required("url", sa.Text),
    sa.Column("scheme", sa.Text),
    required("address_encrypted", sa.LargeBinary),
    created_at(),
    sa.PrimaryKeyConstraint("task_id", "id"),
)

send_operations = sa.Table(
    "send_operations",
    metadata,
    required("caller_id", sa.Uuid),
    required("principal_id", sa.Uuid),
    required("deployment_id", sa.Uuid),
    required("key", sa.Text),
    required("request_hash", sa.LargeBinary),
    required("turn_id", sa.Uuid),
    created_at(),
    sa.PrimaryKeyConstraint("caller_id", "principal_id", "deployment_id", "key"),
    # Retention deletes idempotency keys by age.
    sa.Index("ix_send_operations_created_at", "created_at"),
)
