"""Budgets, the calls that are counted in them, and the models that keys may call."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0039"
down_revision = "0038"

_INSTANT = sa.DateTime(timezone=True)
_ZERO = sa.text("0")


def upgrade() -> None:
    """Create the tables, add the columns, and drop the function whose arguments change."""
    op.add_column("credit_balances", sa.Column("limits", sa.Integer, nullable=False, server_default=_ZERO))
    op.create_check_constraint("limits", "credit_balances", "limits >= 0")
    op.add_column(
        "invocations", sa.Column("held_tokens", sa.BigInteger, nullable=False, server_default=_ZERO)
    )
    for table in ("invocations", "usage_records"):
        op.add_column(table, sa.Column("budget_ids", sa.ARRAY(sa.Uuid)))
        op.add_column(table, sa.Column("budgeted_at", _INSTANT))
    _create_budgets()
    op.create_table(
        "budget_alerts",
        sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("budget_id", sa.Uuid, nullable=False),
        sa.Column("share", sa.Integer, nullable=False),
        sa.Column("details", JSONB, nullable=False),
        sa.Column("at", _INSTANT, nullable=False, server_default=sa.func.now()),
    )
    op.create_table(
        "key_models",
        sa.Column("organization_id", sa.Uuid, sa.ForeignKey("organizations.id"), primary_key=True),
        sa.Column("api_key_id", sa.Uuid, sa.ForeignKey("api_keys.id"), primary_key=True),
        sa.Column("models", sa.ARRAY(sa.Text), nullable=False),
    )
    op.execute("DROP FUNCTION IF EXISTS credits_hold")


def _create_budgets() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("organization_id", sa.Uuid, sa.ForeignKey("organizations.id"), nullable=False),
        sa.Column("subject_kind", sa.Text, nullable=False),
        sa.Column("subject_id", sa.Uuid, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("unit", sa.Text, nullable=False),
        sa.Column("period", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("spent", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("held", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("starts_at", _INSTANT, nullable=False),
        sa.Column("alerted_share", sa.Integer, nullable=False, server_default=_ZERO),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint(
            "subject_kind IN ('api_key', 'user', 'identity', 'deployment')", name="subject_kind"
        ),
        sa.CheckConstraint("unit IN ('credits', 'requests', 'tokens')", name="unit"),
        sa.CheckConstraint("period IN ('once', 'minute', 'day', 'week', 'month')", name="period"),
        sa.CheckConstraint("(unit = 'credits') = (period <> 'minute')", name="unit_of_period"),
        sa.CheckConstraint("amount BETWEEN 0 AND 1000000000000000", name="amount"),
        sa.CheckConstraint("spent >= 0", name="spent"),
        sa.CheckConstraint("held >= 0", name="held"),
        sa.UniqueConstraint(
            "organization_id",
            "subject_id",
            "unit",
            "period",
            "model",
            name="uq_budgets_of_subject",
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_index("ix_budgets_organization_id_id", "budgets", ["organization_id", "id"])
