"""The tables of storage billing: organizations' days, parts of days, prices, and the time of the last measurement."""

import sqlalchemy as sa

from shared.db.schema import instant, metadata, one_of, required, unique_group

storage_days = sa.Table(
    "storage_days",
    metadata,
    required("organization_id", sa.Uuid),
    required("day", sa.Date),
    required("stored_bytes", sa.BigInteger),
    # Numeric, because a GiB stored for a day is 9·10¹⁹ byte-microseconds, which exceeds 64 bits.
    required("byte_microseconds", sa.Numeric(40, 0)),
    sa.Column("price", sa.BigInteger),
    required("price_days", sa.SmallInteger, server_default=sa.text("30")),
    sa.Column("cost", sa.BigInteger),
    sa.Column("remainder", sa.Numeric(40, 0)),
    instant("charged_at"),
    sa.PrimaryKeyConstraint("organization_id", "day"),
    sa.CheckConstraint("price BETWEEN 0 AND 10000000000", name="price"),
    sa.CheckConstraint("price_days BETWEEN 28 AND 31", name="price_days"),
    sa.CheckConstraint("cost >= 0", name="cost"),
    sa.CheckConstraint(
        "(cost IS NULL) = (charged_at IS NULL) AND (remainder IS NULL) = (charged_at IS NULL)", name="charged"
    ),
    sa.CheckConstraint("charged_at IS NULL OR price IS NOT NULL", name="priced"),
    sa.Index(
        "ix_storage_days_uncharged", "organization_id", "day", postgresql_where=sa.text("charged_at IS NULL")
    ),
)

storage_mark = sa.Table(
    "storage_mark",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    instant("measured_to", nullable=False),
    instant("parts_to"),
    sa.CheckConstraint("id = 1", name="one_row"),
)

_PART = ("purpose", "owner_kind", "owner_id", "distribution_id")

storage_parts = sa.Table(
    "storage_parts",
    metadata,
    required("organization_id", sa.Uuid),
    required("day", sa.Date),
    required("purpose", sa.Text),
    required("owner_kind", sa.Text),
    required("owner_id", sa.Uuid),
    sa.Column("distribution_id", sa.Uuid),
    required("stored_bytes", sa.BigInteger),
    required("byte_microseconds", sa.Numeric(40, 0)),
    unique_group("uq_storage_parts_group", "organization_id", "day", *_PART),
    sa.Index("ix_storage_parts_day", "day", postgresql_using="brin"),
)

storage_prices = sa.Table(
    "storage_prices",
    metadata,
    sa.Column("starts_at", sa.DateTime(timezone=True), primary_key=True),
    required("price", sa.BigInteger),
    required("month", sa.Text),
    sa.CheckConstraint("price BETWEEN 0 AND 10000000000", name="price"),
    one_of("month", "30-days", "calendar"),
)
