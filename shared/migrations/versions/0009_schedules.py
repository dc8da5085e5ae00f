"""Schedules of agents, and the runs they made."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_NOW = sa.text("now()")
_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "schedules",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("deployment_id", sa.Uuid, sa.ForeignKey("deployments.id"), nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("cron", sa.Text, nullable=False),
        sa.Column("time_zone", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("behavior_id", sa.Uuid),
        sa.Column("principal_id", sa.Uuid, sa.ForeignKey("identities.id")),
        sa.Column("missed", sa.Text, nullable=False),
        sa.Column("catch_up_limit", sa.Integer, nullable=False),
        sa.Column("next_at", _INSTANT),
        sa.Column("disabled_at", _INSTANT),
        sa.Column("updated_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint("missed IN ('skip', 'run_once', 'catch_up')", name=op.f("ck_schedules_missed")),
        sa.CheckConstraint("catch_up_limit BETWEEN 1 AND 100", name=op.f("ck_schedules_catch_up_limit")),
        sa.CheckConstraint("disabled_at IS NULL OR next_at IS NULL", name=op.f("ck_schedules_disabled")),
    )
    op.create_index("ix_schedules_deployment_id_id", "schedules", ["deployment_id", "id"])
    op.create_index("ix_schedules_principal_id", "schedules", ["principal_id"])
    op.create_index(
        "ix_schedules_due", "schedules", ["next_at"], postgresql_where=sa.text("next_at IS NOT NULL")
    )
    op.create_table(
        "schedule_runs",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("schedule_id", sa.Uuid, sa.ForeignKey("schedules.id", ondelete="CASCADE"), nullable=False),
        sa.Column("tick_at", _INSTANT, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("task_id", sa.Uuid),
        sa.Column("passed_over", sa.Integer, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=_NOW),
        sa.CheckConstraint("state IN ('started', 'refused', 'skipped')", name=op.f("ck_schedule_runs_state")),
        sa.CheckConstraint("(state = 'started') = (task_id IS NOT NULL)", name=op.f("ck_schedule_runs_task")),
        sa.CheckConstraint("(state = 'refused') = (code IS NOT NULL)", name=op.f("ck_schedule_runs_code")),
        sa.UniqueConstraint("schedule_id", "tick_at"),
    )
    op.create_index("ix_schedule_runs_schedule_id_id", "schedule_runs", ["schedule_id", "id"])
