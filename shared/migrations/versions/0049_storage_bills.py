"""What is stored by purpose, distribution and owner, for how many days a price is, and since when it holds."""

import sqlalchemy as sa
from alembic import op

revision = "0049"
down_revision = "0048"


def upgrade() -> None:
    """Make the tables. The first run of the meter counts the parts: `parts_to` says that nobody has."""
    op.add_column("files", sa.Column("distribution_id", sa.Uuid))
    op.add_column("storage_mark", sa.Column("parts_to", sa.DateTime(timezone=True)))
    op.add_column(
        "storage_days", sa.Column("price_days", sa.SmallInteger, nullable=False, server_default=sa.text("30"))
    )
    op.create_check_constraint(
        op.f("ck_storage_days_price_days"), "storage_days", "price_days BETWEEN 28 AND 31"
    )
    op.create_table(
        "storage_parts",
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("day", sa.Date, nullable=False),
        sa.Column("purpose", sa.Text, nullable=False),
        sa.Column("owner_kind", sa.Text, nullable=False),
        sa.Column("owner_id", sa.Uuid, nullable=False),
        sa.Column("distribution_id", sa.Uuid),
        sa.Column("stored_bytes", sa.BigInteger, nullable=False),
        sa.Column("byte_microseconds", sa.Numeric(40, 0), nullable=False),
        sa.UniqueConstraint(
            "organization_id",
            "day",
            "purpose",
            "owner_kind",
            "owner_id",
            "distribution_id",
            name="uq_storage_parts_group",
            postgresql_nulls_not_distinct=True,
        ),
    )
    op.create_index("ix_storage_parts_day", "storage_parts", ["day"], postgresql_using="brin")
    op.create_table(
        "storage_prices",
        sa.Column("starts_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("price", sa.BigInteger, nullable=False),
        sa.Column("month", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("starts_at", name="pk_storage_prices"),
        sa.CheckConstraint("price BETWEEN 0 AND 10000000000", name=op.f("ck_storage_prices_price")),
        sa.CheckConstraint("month IN ('30-days', 'calendar')", name=op.f("ck_storage_prices_month")),
    )
