"""Prices of the cached and the written part of a prompt, of reasoning and of a call; tokens written to a cache."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"

_PRICES = {"cached_prompt": "", "cache_write": "", "reasoning": "", "request": "NOT NULL DEFAULT 0"}
_CHANGED = ("credits_hold", "credits_settle", "credits_charge", "credits_correct", "credits_cost")


def upgrade() -> None:
    """Add the columns, and drop the functions whose arguments change; a part without a price costs as its whole."""
    columns = (
        f"ADD COLUMN {name}_price bigint {rest}"
        f" CONSTRAINT ck_invocations_{name}_price CHECK ({name}_price BETWEEN 0 AND 1000000000000)"
        for name, rest in _PRICES.items()
    )
    # One statement, because the checks read the whole table once for each.
    op.execute(f"ALTER TABLE invocations {', '.join(columns)}")
    op.add_column(
        "usage_records",
        sa.Column("cache_write_tokens", sa.BigInteger, nullable=False, server_default=sa.text("0")),
    )
    for name in _CHANGED:
        op.execute(f"DROP FUNCTION IF EXISTS {name}")
