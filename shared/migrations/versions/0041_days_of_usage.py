"""Daily sums of usage, and tokens written to a cache in the hourly ones."""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"

_ZERO = sa.text("0")
_IDS = ("user_id", "identity_id", "principal_id", "deployment_id", "api_key_id", "distribution_id")
_SUMS = ("invocations", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")
_GROUP = ", ".join(("model", *_IDS))
_FILL = f"""
INSERT INTO usage_days (organization_id, day, {_GROUP}, {", ".join(_SUMS)})
SELECT organization_id, date_trunc('day', hour, 'UTC'), {_GROUP}, {", ".join(f"sum({name})" for name in _SUMS)}
FROM usage_hours WHERE hour < (SELECT date_trunc('day', rolled_up_to, 'UTC') FROM usage_rollup)
GROUP BY organization_id, date_trunc('day', hour, 'UTC'), {_GROUP}
"""  # noqa: S608 (columns named above)


def upgrade() -> None:
    """Make the table, and fill it from the hours of the days that are over."""
    # A roll-up by the functions of before makes no days. It takes this lock first too.
    op.execute("SELECT FROM usage_rollup FOR UPDATE")
    op.add_column(
        "usage_hours", sa.Column("cache_write_tokens", sa.BigInteger, nullable=False, server_default=_ZERO)
    )
    op.create_table(
        "usage_days",
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("day", sa.DateTime(timezone=True), nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        *(sa.Column(name, sa.Uuid) for name in _IDS),
        *(sa.Column(name, sa.BigInteger, nullable=False) for name in _SUMS),
        sa.Column("cache_write_tokens", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.UniqueConstraint(
            "organization_id",
            "day",
            "model",
            *_IDS,
            name="uq_usage_days_group",
            postgresql_nulls_not_distinct=True,
        ),
    )
    # For sums over all organizations. An organization's own are found by the unique index, and by it alone.
    op.drop_index("ix_usage_hours_hour", "usage_hours")
    op.create_index("ix_usage_hours_hour", "usage_hours", ["hour"], postgresql_using="brin")
    op.execute(_FILL)
