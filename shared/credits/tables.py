"""The tables of credits, mirrored by the migrations; only server-side functions write rows of money.

No foreign key points at the balance: its check on a row that every call updates halves an organization's throughput.
A trigger refuses updates and deletes of `ledger_entries`. All amounts are µcr.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    Date,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    Numeric,
    PrimaryKeyConstraint,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    text,
)

from shared.schema import created_at, id_column, instant, metadata

_ZERO = text("0")

credit_balances = Table(
    "credit_balances",
    metadata,
    Column("organization_id", Uuid, ForeignKey("organizations.id"), primary_key=True),
    Column("posted", BigInteger, nullable=False, server_default=_ZERO),
    Column("held", BigInteger, nullable=False, server_default=_ZERO),
    Column("policy", Text, nullable=False, server_default=text("'active'")),
    Column("overdraft", BigInteger, nullable=False, server_default=_ZERO),
    Column("spending_limit", BigInteger),
    Column("spent", BigInteger, nullable=False, server_default=_ZERO),
    Column("spent_month", Date, nullable=False, server_default=text("'1970-01-01'")),
    Column("version", BigInteger, nullable=False, server_default=_ZERO),
    instant("storage_overdue_since"),
    instant("storage_refused_from"),
    Column("calls", Integer, nullable=False, server_default=_ZERO),
    instant("suspended_by_owner_at"),
    instant("suspended_by_operator_at"),
    CheckConstraint("posted BETWEEN -4000000000000000000 AND 4000000000000000000", name="posted"),
    CheckConstraint("held >= 0", name="held"),
    CheckConstraint("calls >= 0", name="calls"),
    CheckConstraint("policy IN ('active', 'limit', 'suspended')", name="policy"),
    CheckConstraint("overdraft BETWEEN 0 AND 1000000000000000", name="overdraft"),
    CheckConstraint("spending_limit BETWEEN 0 AND 1000000000000000", name="spending_limit"),
    CheckConstraint("policy <> 'limit' OR spending_limit IS NOT NULL", name="limited"),
    CheckConstraint("(storage_overdue_since IS NULL) = (storage_refused_from IS NULL)", name="overdue"),
)

invocations = Table(
    "invocations",
    metadata,
    id_column(),
    Column("organization_id", Uuid, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'held'")),
    Column("hold", BigInteger, nullable=False),
    Column("model", Text, nullable=False),
    Column("prompt_price", BigInteger, nullable=False),
    Column("completion_price", BigInteger, nullable=False),
    Column("estimated_prompt_tokens", BigInteger, nullable=False),
    Column("streamed_tokens", BigInteger, nullable=False, server_default=_ZERO),
    Column("request_hash", LargeBinary),
    Column("dispatch_token", Uuid),
    Column("user_id", Uuid),
    Column("identity_id", Uuid),
    Column("principal_id", Uuid),
    Column("deployment_id", Uuid),
    Column("provider", Text),
    created_at(),
    instant("lease_until", nullable=False),
    instant("ended_at"),
    CheckConstraint(
        "state IN ('held', 'dispatched', 'unresolved', 'settled', 'voided', 'expired')", name="state"
    ),
    CheckConstraint("hold BETWEEN 0 AND 2000000000000000", name="hold"),
    CheckConstraint("prompt_price BETWEEN 0 AND 1000000000000", name="prompt_price"),
    CheckConstraint("completion_price BETWEEN 0 AND 1000000000000", name="completion_price"),
    Index(
        "ix_invocations_open",
        "lease_until",
        postgresql_where=text("state IN ('held', 'dispatched', 'unresolved')"),
    ),
    Index("ix_invocations_created_at", "created_at", postgresql_using="brin"),
)

usage_records = Table(
    "usage_records",
    metadata,
    id_column("invocation_id"),
    Column("organization_id", Uuid, nullable=False),
    Column("model", Text, nullable=False),
    Column("provider", Text),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    Column("status", Text, nullable=False),
    Column("is_estimated", Boolean, nullable=False),
    Column("user_id", Uuid),
    Column("identity_id", Uuid),
    Column("principal_id", Uuid),
    Column("deployment_id", Uuid),
    instant("occurred_at", nullable=False),
    instant("corrected_at"),
    CheckConstraint("status IN ('completed', 'failed', 'cancelled', 'incomplete')", name="status"),
    CheckConstraint("cost >= 0", name="cost"),
    Index("ix_usage_records_page", "organization_id", "occurred_at", "invocation_id"),
    Index(
        "ix_usage_records_user",
        "organization_id",
        "user_id",
        "occurred_at",
        "invocation_id",
        postgresql_where=text("user_id IS NOT NULL"),
    ),
    Index("ix_usage_records_occurred_at", "occurred_at", postgresql_using="brin"),
)

ledger_entries = Table(
    "ledger_entries",
    metadata,
    Column("organization_id", Uuid, nullable=False),
    Column("version", BigInteger, nullable=False),
    Column("kind", Text, nullable=False),
    Column("reference", Text, nullable=False),
    Column("amount", BigInteger, nullable=False),
    Column("balance_after", BigInteger, nullable=False),
    instant("occurred_at", nullable=False),
    PrimaryKeyConstraint("organization_id", "version"),
    UniqueConstraint("organization_id", "kind", "reference"),
    CheckConstraint("kind IN ('top_up', 'charge', 'correction', 'adjustment', 'storage')", name="kind"),
    CheckConstraint("amount <> 0", name="amount"),
)

usage_hours = Table(
    "usage_hours",
    metadata,
    Column("organization_id", Uuid, nullable=False),
    instant("hour", nullable=False),
    Column("model", Text, nullable=False),
    Column("user_id", Uuid),
    Column("identity_id", Uuid),
    Column("principal_id", Uuid),
    Column("deployment_id", Uuid),
    Column("invocations", BigInteger, nullable=False),
    Column("prompt_tokens", BigInteger, nullable=False),
    Column("completion_tokens", BigInteger, nullable=False),
    Column("cached_tokens", BigInteger, nullable=False),
    Column("reasoning_tokens", BigInteger, nullable=False),
    Column("cost", BigInteger, nullable=False),
    UniqueConstraint(
        "organization_id",
        "hour",
        "model",
        "user_id",
        "identity_id",
        "principal_id",
        "deployment_id",
        name="uq_usage_hours_group",
        postgresql_nulls_not_distinct=True,
    ),
    Index("ix_usage_hours_hour", "hour"),
)

usage_rollup = Table(
    "usage_rollup",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    instant("rolled_up_to", nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)

storage_days = Table(
    "storage_days",
    metadata,
    Column("organization_id", Uuid, nullable=False),
    Column("day", Date, nullable=False),
    Column("stored_bytes", BigInteger, nullable=False),
    Column("byte_microseconds", Numeric(40, 0), nullable=False),
    Column("price", BigInteger),
    Column("cost", BigInteger),
    Column("remainder", Numeric(40, 0)),
    instant("charged_at"),
    PrimaryKeyConstraint("organization_id", "day"),
    CheckConstraint("price BETWEEN 0 AND 10000000000", name="price"),
    CheckConstraint("cost >= 0", name="cost"),
    CheckConstraint(
        "(cost IS NULL) = (charged_at IS NULL) AND (remainder IS NULL) = (charged_at IS NULL)", name="charged"
    ),
    CheckConstraint("charged_at IS NULL OR price IS NOT NULL", name="priced"),
    Index("ix_storage_days_uncharged", "organization_id", "day", postgresql_where=text("charged_at IS NULL")),
)

storage_mark = Table(
    "storage_mark",
    metadata,
    Column("id", SmallInteger, primary_key=True, autoincrement=False),
    instant("measured_to", nullable=False),
    CheckConstraint("id = 1", name="one_row"),
)
