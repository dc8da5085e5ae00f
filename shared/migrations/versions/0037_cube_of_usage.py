"""The API key and the distribution of each call: on invocations, usage records and the hourly sums."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"

_TABLES = ("invocations", "usage_records", "usage_hours")
_COLUMNS = ("api_key_id", "distribution_id")
_GROUP = (
    "organization_id",
    "hour",
    "model",
    "user_id",
    "identity_id",
    "principal_id",
    "deployment_id",
    *_COLUMNS,
)


def upgrade() -> None:
    """Add the columns, group the hours by them too, and drop the function whose arguments change."""
    for table in _TABLES:
        for column in _COLUMNS:
            op.add_column(table, sa.Column(column, sa.Uuid))
    # Only `credits_roll_up` names it, which is replaced in the same transaction.
    op.drop_constraint("uq_usage_hours_group", "usage_hours")
    op.create_unique_constraint(
        "uq_usage_hours_group", "usage_hours", list(_GROUP), postgresql_nulls_not_distinct=True
    )
    op.execute("DROP FUNCTION IF EXISTS credits_hold")
