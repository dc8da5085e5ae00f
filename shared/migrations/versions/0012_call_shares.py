"""How many calls each organization has open, and to which provider; leases renewed for many calls at once.

The functions are in `shared/credits/sql`, one file each; what they were before is in `0012_call_shares_before.sql`.
"""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_SOURCES = Path(__file__).parents[2] / "credits" / "sql"
_BEFORE = Path(__file__).with_name("0012_call_shares_before.sql")
_REPLACED = ("credits_void", "credits_charge", "credits_release_overdue")
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
    """Count the calls that are open, then replace the functions whose arguments change, and those that call them."""
    op.add_column(
        "credit_balances", sa.Column("calls", sa.Integer, nullable=False, server_default=sa.text("0"))
    )
    op.create_check_constraint("calls", "credit_balances", "calls >= 0")
    op.add_column("invocations", sa.Column("provider", sa.Text))
    _drop_changed()
    for name in ("credits_post", "credits_hold", *_REPLACED, "credits_renew"):
        op.execute((_SOURCES / f"{name}.sql").read_text())
    op.execute(_COUNT_OPEN_CALLS)


def downgrade() -> None:
    """Put the functions of before back, and count nothing."""
    op.execute("DROP FUNCTION credits_renew")
    _drop_changed()
    op.execute(_BEFORE.read_text())
    op.drop_column("invocations", "provider")
    op.drop_constraint("ck_credit_balances_calls", "credit_balances")
    op.drop_column("credit_balances", "calls")


def _drop_changed() -> None:
    for name in ("credits_hold", "credits_post"):
        op.execute(f"DROP FUNCTION {name}")
