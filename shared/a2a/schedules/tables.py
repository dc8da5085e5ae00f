"""The tables of schedules (migrations 0009, 0020): when an agent is to be told something, and when it was.

`next_at` is the next tick, NULL while the schedule is off or has none. A tick has one row, written with its task: no
tick runs twice.
"""

import sqlalchemy as sa

from shared.a2a.exact_json import ExactJson
from shared.schema import created_at, id_column, instant, metadata

schedules = sa.Table(
    "schedules",
    metadata,
    id_column(),
    sa.Column("deployment_id", sa.ForeignKey("deployments.id"), nullable=False),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("cron", sa.Text, nullable=False),
    sa.Column("time_zone", sa.Text, nullable=False),
    sa.Column("message", ExactJson, nullable=False),
    sa.Column("behavior_id", sa.Uuid),
    sa.Column("principal_id", sa.ForeignKey("identities.id")),
    sa.Column("missed", sa.Text, nullable=False),
    sa.Column("catch_up_limit", sa.Integer, nullable=False),
    instant("next_at"),
    instant("disabled_at"),
    instant("updated_at", nullable=False, server_default=sa.text("now()")),
    created_at(),
    sa.CheckConstraint("missed IN ('skip', 'run_once', 'catch_up')", name="missed"),
    sa.CheckConstraint("catch_up_limit BETWEEN 1 AND 100", name="catch_up_limit"),
    sa.CheckConstraint("disabled_at IS NULL OR next_at IS NULL", name="disabled"),
    sa.Index("ix_schedules_deployment_id_id", "deployment_id", "id"),
    sa.Index("ix_schedules_principal_id", "principal_id"),
    sa.Index(
        "ix_schedules_due_by_deployment",
        "deployment_id",
        "next_at",
        postgresql_where=sa.text("next_at IS NOT NULL"),
    ),
    sa.Index("ix_schedules_due", "next_at", postgresql_where=sa.text("next_at IS NOT NULL")),
)

schedule_runs = sa.Table(
    "schedule_runs",
    metadata,
    id_column(),
    sa.Column("schedule_id", sa.ForeignKey("schedules.id", ondelete="CASCADE"), nullable=False),
    instant("tick_at", nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("code", sa.Text),
    sa.Column("task_id", sa.Uuid),
    sa.Column("passed_over", sa.Integer, nullable=False),
    created_at(),
    sa.CheckConstraint("state IN ('started', 'refused', 'skipped')", name="state"),
    sa.CheckConstraint("(state = 'started') = (task_id IS NOT NULL)", name="task"),
    sa.CheckConstraint("(state = 'refused') = (code IS NOT NULL)", name="code"),
    sa.UniqueConstraint("schedule_id", "tick_at"),
    sa.Index("ix_schedule_runs_schedule_id_id", "schedule_id", "id"),
)
