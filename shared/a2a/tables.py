"""The tables of agents and their tasks, mirrored by migration 0007.

Everything that changes a task locks its row first, so the events of one task have one order, which is `task_events`.
`task_messages` is what was said, `task_turns` the work, one row per message that the agent has to answer; `is_next`
marks the first of a task that is not done, which alone may be claimed. JSON that clients see is text
(`exact_json.py`).
"""

from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from shared.a2a.exact_json import ExactJson
from shared.schema import created_at, id_column, instant, metadata

_NO_TEXTS = text("'{}'::text[]")
_STATES = (
    "'TASK_STATE_SUBMITTED', 'TASK_STATE_WORKING', 'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED',"
    " 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED', 'TASK_STATE_INPUT_REQUIRED', 'TASK_STATE_AUTH_REQUIRED'"
)

_SCOPE = ("caller_id", "principal_id", "deployment_id")
_LAST_CHANGED = (text("status_at DESC"), text("id DESC"))
_VISIBLE = text("is_visible")

ENDED_STATES = "'TASK_STATE_COMPLETED', 'TASK_STATE_FAILED', 'TASK_STATE_CANCELED', 'TASK_STATE_REJECTED'"

behaviors = Table(
    "behaviors",
    metadata,
    id_column(),
    Column("deployment_id", ForeignKey("deployments.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("model", Text),
    Column("instructions", Text, nullable=False, server_default=text("''")),
    Column("script", Text),
    Column("tags", ARRAY(Text), nullable=False, server_default=_NO_TEXTS),
    Column("examples", ARRAY(Text), nullable=False, server_default=_NO_TEXTS),
    Column("input_modes", ARRAY(Text), nullable=False, server_default=_NO_TEXTS),
    Column("output_modes", ARRAY(Text), nullable=False, server_default=_NO_TEXTS),
    Column("extensions", ExactJson, nullable=False, server_default=text("'[]'")),
    Column("is_default", Boolean, nullable=False),
    instant("updated_at", nullable=False, server_default=text("now()")),
    created_at(),
    CheckConstraint("kind IN ('model', 'script')", name="kind"),
    CheckConstraint("kind = 'script' OR script IS NULL", name="script"),
    CheckConstraint("(kind = 'model') = (model IS NOT NULL)", name="model"),
    UniqueConstraint("deployment_id", "name"),
    Index("uq_behaviors_default", "deployment_id", unique=True, postgresql_where=text("is_default")),
)

tasks = Table(
    "tasks",
    metadata,
    id_column(),
    Column("context_id", Text, nullable=False),
    Column("organization_id", Uuid, nullable=False),
    Column("deployment_id", Uuid, nullable=False),
    Column("caller_id", Uuid, nullable=False),
    Column("principal_id", Uuid, nullable=False),
    Column("state", Text, nullable=False),
    Column("status_message", Integer),
    instant("status_at", nullable=False),
    Column("is_visible", Boolean, nullable=False),
    Column("last_sequence", BigInteger, nullable=False, server_default=text("0")),
    Column("last_message", Integer, nullable=False, server_default=text("0")),
    Column("artifacts", ExactJson),
    Column("has_events", Boolean, nullable=False, server_default=text("true")),
    created_at(),
    CheckConstraint(f"state IN ({_STATES})", name="state"),
    Index("ix_tasks_listed", *_SCOPE, *_LAST_CHANGED, postgresql_where=_VISIBLE),
    Index("ix_tasks_by_context", *_SCOPE, "context_id", *_LAST_CHANGED, postgresql_where=_VISIBLE),
    Index("ix_tasks_by_state", *_SCOPE, "state", *_LAST_CHANGED, postgresql_where=_VISIBLE),
    Index("ix_tasks_status_at", "status_at"),
    Index("ix_tasks_ended", "status_at", postgresql_where=text(f"has_events AND state IN ({ENDED_STATES})")),
)

task_messages = Table(
    "task_messages",
    metadata,
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("message", ExactJson, nullable=False),
    created_at(),
    PrimaryKeyConstraint("task_id", "number"),
)

task_turns = Table(
    "task_turns",
    metadata,
    id_column(),
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False, index=True),
    Column("message", Integer, nullable=False),
    Column("behavior_id", Uuid, nullable=False),
    Column("request", ExactJson, nullable=False),
    Column("active_extensions", ARRAY(Text), nullable=False),
    Column("owner_id", Uuid),
    Column("payer_id", Uuid, nullable=False),
    Column("deployment_id", Uuid, nullable=False, server_default=text(f"'{UUID(int=0)}'")),
    Column("distribution_id", Uuid),
    Column("transaction_id", Text, nullable=False),
    Column("reported_caller", ExactJson),
    Column("state", Text, nullable=False),
    Column("is_next", Boolean, nullable=False, server_default=text("true")),
    Column("outcome", Text),
    Column("reply", Integer),
    Column("lease_id", Uuid),
    instant("lease_until"),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("updates", Integer, nullable=False, server_default=text("0")),
    Column("has_spoken", Boolean, nullable=False, server_default=text("false")),
    created_at(),
    CheckConstraint("state IN ('queued', 'running', 'done')", name="state"),
    CheckConstraint("(state = 'done') = (outcome IS NOT NULL)", name="outcome"),
    CheckConstraint("(state = 'running') = (lease_id IS NOT NULL)", name="lease"),
    UniqueConstraint("task_id", "message"),
    Index(
        "ix_task_turns_ready",
        "payer_id",
        "deployment_id",
        "created_at",
        postgresql_where=text("state = 'queued' AND is_next"),
    ),
    Index("ix_task_turns_behind", "created_at", postgresql_where=text("state = 'queued' AND NOT is_next")),
    Index("ix_task_turns_running", "lease_until", postgresql_where=text("state = 'running'")),
)

task_events = Table(
    "task_events",
    metadata,
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("sequence", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("event", ExactJson, nullable=False),
    created_at(),
    PrimaryKeyConstraint("task_id", "sequence"),
    CheckConstraint("kind IN ('status', 'artifact', 'message')", name="kind"),
)

task_push_configurations = Table(
    "task_push_configurations",
    metadata,
    Column("task_id", ForeignKey("tasks.id", ondelete="CASCADE"), nullable=False),
    Column("id", Text, nullable=False),
    Column("destination_id", Uuid, nullable=False),
    Column("url", Text, nullable=False),
    Column("scheme", Text),
    Column("address_encrypted", LargeBinary, nullable=False),
    created_at(),
    PrimaryKeyConstraint("task_id", "id"),
)

send_operations = Table(
    "send_operations",
    metadata,
    Column("caller_id", Uuid, nullable=False),
    Column("principal_id", Uuid, nullable=False),
    Column("deployment_id", Uuid, nullable=False),
    Column("key", Text, nullable=False),
    Column("request_hash", LargeBinary, nullable=False),
    Column("turn_id", Uuid, nullable=False),
    created_at(),
    PrimaryKeyConstraint("caller_id", "principal_id", "deployment_id", "key"),
    Index("ix_send_operations_created_at", "created_at"),
)
