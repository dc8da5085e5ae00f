"""Who suspended an organization's spending: its owner, an operator, or both."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Add a moment for each side; suspensions of before count as an operator's, so that no owner lifts one of those."""
    for column in ("suspended_by_owner_at", "suspended_by_operator_at"):
        op.add_column("credit_balances", sa.Column(column, sa.DateTime(timezone=True)))
    op.execute("UPDATE credit_balances SET suspended_by_operator_at = now() WHERE policy = 'suspended'")
