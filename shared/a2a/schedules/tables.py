"""The tables of schedules (migrations 0009, 0020): when an agent is to be told something, and when it was.

`next_at` is the next tick, NULL while the schedule is off or has none. A tick has one row, written with its task: no
tick runs twice.
"""

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from shared.a2a.exact_json import ExactJson
from shared.schema import created_at, id_column, instant, metadata

schedules = Table(
    "schedules",
    metadata,
    id_column(),
    Column("deployment_id", ForeignKey("deployments.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("cron", Text, nullable=False),
    Column("time_zone", Text, nullable=False),
    Column("message", ExactJson, nullable=False),
    Column("behavior_id", Uuid),
    Column("principal_id", ForeignKey("identities.id")),
    Column("missed", Text, nullable=False),
    Column("catch_up_limit", Integer, nullable=False),
    instant("next_at"),
    instant("disabled_at"),
    instant("updated_at", nullable=False, server_default=text("now()")),
    created_at(),
    CheckConstraint("missed IN ('skip', 'run_once', 'catch_up')", name="missed"),
    CheckConstraint("catch_up_limit BETWEEN 1 AND 100", name="catch_up_limit"),
    CheckConstraint("disabled_at IS NULL OR next_at IS NULL", name="disabled"),
    Index("ix_schedules_deployment_id_id", "deployment_id", "id"),
    Index("ix_schedules_principal_id", "principal_id"),
    Index(
        "ix_schedules_due_by_deployment",
        "deployment_id",
        "next_at",
        postgresql_where=text("next_at IS NOT NULL"),
    ),
    Index("ix_schedules_due", "next_at", postgresql_where=text("next_at IS NOT NULL")),
)

schedule_runs = Table(
    "schedule_runs",
    metadata,
    id_column(),
    Column("schedule_id", ForeignKey("schedules.id", ondelete="CASCADE"), nullable=False),
    instant("tick_at", nullable=False),
    Column("state", Text, nullable=False),
    Column("code", Text),
    Column("task_id", Uuid),
    Column("passed_over", Integer, nullable=False),
    created_at(),
    CheckConstraint("state IN ('started', 'refused', 'skipped')", name="state"),
    CheckConstraint("(state = 'started') = (task_id IS NOT NULL)", name="task"),
    CheckConstraint("(state = 'refused') = (code IS NOT NULL)", name="code"),
    UniqueConstraint("schedule_id", "tick_at"),
    Index("ix_schedule_runs_schedule_id_id", "schedule_id", "id"),
)
