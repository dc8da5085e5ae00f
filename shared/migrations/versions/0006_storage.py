"""What stored bytes cost over time: measured days, their charges, and since when an organization owes for them."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

_INSTANT = sa.DateTime(timezone=True)
_KINDS = "kind IN ('top_up', 'charge', 'correction', 'adjustment', 'storage')"


def upgrade() -> None:
    """Create the tables and indexes."""
    for name in ("storage_overdue_since", "storage_refused_from"):
        op.add_column("credit_balances", sa.Column(name, _INSTANT))
    op.create_check_constraint(
        "overdue", "credit_balances", "(storage_overdue_since IS NULL) = (storage_refused_from IS NULL)"
    )
    op.drop_constraint("ck_ledger_entries_kind", "ledger_entries")
    op.create_check_constraint("kind", "ledger_entries", _KINDS)
    _create_days()
    op.create_index(
        "ix_files_ended_at", "files", ["ended_at"], postgresql_where=sa.text("ended_at IS NOT NULL")
    )
    op.create_index(
        "ix_file_versions_created_at",
        "file_versions",
        ["created_at"],
        postgresql_using="brin",
        postgresql_with={"autosummarize": "on"},
    )


def _create_days() -> None:
    op.create_table(
        "storage_days",
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False),
        sa.Column("byte_microseconds", sa.Numeric(40, 0), nullable=False),
        sa.Column("price", sa.BigInteger),
        sa.Column("cost", sa.BigInteger),
        sa.Column("remainder", sa.Numeric(40, 0)),
        sa.Column("charged_at", _INSTANT),
        sa.PrimaryKeyConstraint("organization_id", "day"),
        sa.CheckConstraint("price BETWEEN 0 AND 10000000000", name="price"),
        sa.CheckConstraint("cost >= 0", name="cost"),
        sa.CheckConstraint(
            "(cost IS NULL) = (charged_at IS NULL) AND (remainder IS NULL) = (charged_at IS NULL)",
            name="charged",
        ),
        sa.CheckConstraint("charged_at IS NULL OR price IS NOT NULL", name="priced"),
    )
    op.create_index(
        "ix_storage_days_uncharged",
        "storage_days",
        ["organization_id", "day"],
        postgresql_where=sa.text("charged_at IS NULL"),
    )
    # Empty until the first accrual, which begins with the day in which it runs.
    op.create_table(
        "storage_mark",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("measured_to", _INSTANT, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
