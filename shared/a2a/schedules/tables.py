"""The tables of schedules and their runs (migrations 0009, 0020).

`next_at` is the next tick, or NULL if the schedule is disabled or has no next tick. Each tick has one unique row, which
is written in the transaction that creates the tick's task. So no tick runs twice.
"""

import sqlalchemy as sa

from shared.a2a.exact_json import ExactJson
from shared.db.schema import created_at, id_column, instant, metadata, one_of, required

schedules = sa.Table(
    "schedules",
    metadata,
    id_column(),
    required("deployment_id", sa.ForeignKey("deployments.id")),
    required("name", sa.Text),
    required("cron", sa.Text),
    required("time_zone", sa.Text),
    required("message", ExactJson),
    sa.Column("behavior_id", sa.Uuid),
    sa.Column("principal_id", sa.ForeignKey("identities.id")),
    required("missed", sa.Text),
    required("catch_up_limit", sa.Integer),
    instant("next_at"),
    instant("disabled_at"),
    instant("updated_at", nullable=False, server_default=sa.text("now()")),
    created_at(),
    one_of("missed", "skip", "run_once", "catch_up"),
    sa.CheckConstraint("catch_up_limit BETWEEN 1 AND 100", name="catch_up_limit"),
    sa.CheckConstraint("disabled_at IS NULL OR next_at IS NULL", name="disabled"),
    sa.Index("ix_schedules_deployment_id_id", "deployment_id", "id"),
    sa.Index("ix_schedules_principal_id", "principal_id"),
    # The fair query takes the first due schedules of each deployment.
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
    required("schedule_id", sa.ForeignKey("schedules.id", ondelete="CASCADE")),
    instant("tick_at", nullable=False),
    required("state", sa.Text),
    sa.Column("code", sa.Text),
    # No foreign key: the record of a run stays after retention has deleted its task.
    sa.Column("task_id", sa.Uuid),
    required("passed_over", sa.Integer),
    created_at(),
    one_of("state", "started", "refused", "skipped"),
    sa.CheckConstraint("(state = 'started') = (task_id IS NOT NULL)", name="task"),
    sa.CheckConstraint("(state = 'refused') = (code IS NOT NULL)", name="code"),
    # A second transaction for the same tick fails here, so its task is rolled back.
    sa.UniqueConstraint("schedule_id", "tick_at"),
    sa.Index("ix_schedule_runs_schedule_id_id", "schedule_id", "id"),
)
