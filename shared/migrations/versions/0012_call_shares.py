"""How many calls each organization has open, and to which provider."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

# Calls that end at this moment are locked, and end by the functions of before, which count nothing.
_COUNT_OPEN_CALLS = """
UPDATE credit_balances b SET calls = counted.calls FROM (
    SELECT organization_id, count(*) AS calls FROM (
        SELECT organization_id FROM invocations
        WHERE state IN ('held', 'dispatched', 'unresolved') FOR UPDATE SKIP LOCKED
    ) AS open GROUP BY organization_id
) AS counted WHERE counted.organization_id = b.organization_id
"""


def upgrade() -> None:
    """Count the calls that are open, and drop the functions whose arguments change."""
    op.add_column(
        "credit_balances", sa.Column("calls", sa.Integer, nullable=False, server_default=sa.text("0"))
    )
    op.create_check_constraint("calls", "credit_balances", "calls >= 0")
    op.add_column("invocations", sa.Column("provider", sa.Text))
    for name in ("credits_hold", "credits_post"):
        op.execute(f"DROP FUNCTION IF EXISTS {name}")
    op.execute(_COUNT_OPEN_CALLS)
