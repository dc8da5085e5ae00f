"""The tables of credits, mirrored by the migrations; only server-side functions write rows of money.

No foreign key points at the balance: its check on a row that every call updates halves an organization's throughput.
A trigger refuses updates and deletes of `ledger_entries`. All amounts are µcr.
"""

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from shared.schema import created_at, id_column, instant, metadata

_ZERO = sa.text("0")

credit_balances = sa.Table(
    "credit_balances",
    metadata,
    sa.Column("organization_id", sa.Uuid, sa.ForeignKey("organizations.id"), primary_key=True),
    sa.Column("posted", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Column("held", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Column("policy", sa.Text, nullable=False, server_default=sa.text("'active'")),
    sa.Column("overdraft", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Column("spending_limit", sa.BigInteger),
    sa.Column("spent", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Column("spent_month", sa.Date, nullable=False, server_default=sa.text("'1970-01-01'")),
    sa.Column("version", sa.BigInteger, nullable=False, server_default=_ZERO),
    instant("storage_overdue_since"),
    instant("storage_refused_from"),
    sa.Column("calls", sa.Integer, nullable=False, server_default=_ZERO),
    sa.Column("limits", sa.Integer, nullable=False, server_default=_ZERO),
    instant("suspended_by_owner_at"),
    instant("suspended_by_operator_at"),
    sa.CheckConstraint("posted BETWEEN -4000000000000000000 AND 4000000000000000000", name="posted"),
    sa.CheckConstraint("held >= 0", name="held"),
    sa.CheckConstraint("calls >= 0", name="calls"),
    sa.CheckConstraint("limits >= 0", name="limits"),
    sa.CheckConstraint("policy IN ('active', 'limit', 'suspended')", name="policy"),
    sa.CheckConstraint("overdraft BETWEEN 0 AND 1000000000000000", name="overdraft"),
    sa.CheckConstraint("spending_limit BETWEEN 0 AND 1000000000000000", name="spending_limit"),
    sa.CheckConstraint("policy <> 'limit' OR spending_limit IS NOT NULL", name="limited"),
    sa.CheckConstraint("(storage_overdue_since IS NULL) = (storage_refused_from IS NULL)", name="overdue"),
)

invocations = sa.Table(
    "invocations",
    metadata,
    id_column(),
    sa.Column("organization_id", sa.Uuid, nullable=False),
    sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'held'")),
    sa.Column("hold", sa.BigInteger, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("prompt_price", sa.BigInteger, nullable=False),
    sa.Column("completion_price", sa.BigInteger, nullable=False),
    sa.Column("cached_prompt_price", sa.BigInteger),
    sa.Column("cache_write_price", sa.BigInteger),
    sa.Column("reasoning_price", sa.BigInteger),
    sa.Column("request_price", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Column("estimated_prompt_tokens", sa.BigInteger, nullable=False),
    sa.Column("streamed_tokens", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Column("request_hash", sa.LargeBinary),
    sa.Column("dispatch_token", sa.Uuid),
    sa.Column("user_id", sa.Uuid),
    sa.Column("identity_id", sa.Uuid),
    sa.Column("principal_id", sa.Uuid),
    sa.Column("deployment_id", sa.Uuid),
    sa.Column("api_key_id", sa.Uuid),
    sa.Column("distribution_id", sa.Uuid),
    sa.Column("provider", sa.Text),
    sa.Column("budget_ids", sa.ARRAY(sa.Uuid)),
    instant("budgeted_at"),
    sa.Column("held_tokens", sa.BigInteger, nullable=False, server_default=_ZERO),
    created_at(),
    instant("lease_until", nullable=False),
    instant("ended_at"),
    sa.CheckConstraint(
        "state IN ('held', 'dispatched', 'unresolved', 'settled', 'voided', 'expired')", name="state"
    ),
    sa.CheckConstraint("hold BETWEEN 0 AND 2000000000000000", name="hold"),
    sa.CheckConstraint("prompt_price BETWEEN 0 AND 1000000000000", name="prompt_price"),
    sa.CheckConstraint("completion_price BETWEEN 0 AND 1000000000000", name="completion_price"),
    *(
        sa.CheckConstraint(f"{name} BETWEEN 0 AND 1000000000000", name=name)
        for name in ("cached_prompt_price", "cache_write_price", "reasoning_price", "request_price")
    ),
    sa.Index(
        "ix_invocations_open",
        "lease_until",
        postgresql_where=sa.text("state IN ('held', 'dispatched', 'unresolved')"),
    ),
    sa.Index("ix_invocations_created_at", "created_at", postgresql_using="brin"),
)

usage_records = sa.Table(
    "usage_records",
    metadata,
    id_column("invocation_id"),
    sa.Column("organization_id", sa.Uuid, nullable=False),
    sa.Column("model", sa.Text, nullable=False),
    sa.Column("provider", sa.Text),
    sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
    sa.Column("completion_tokens", sa.BigInteger, nullable=False),
    sa.Column("cached_tokens", sa.BigInteger, nullable=False),
    sa.Column("cache_write_tokens", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
    sa.Column("cost", sa.BigInteger, nullable=False),
    sa.Column("status", sa.Text, nullable=False),
    sa.Column("is_estimated", sa.Boolean, nullable=False),
    sa.Column("user_id", sa.Uuid),
    sa.Column("identity_id", sa.Uuid),
    sa.Column("principal_id", sa.Uuid),
    sa.Column("deployment_id", sa.Uuid),
    sa.Column("api_key_id", sa.Uuid),
    sa.Column("distribution_id", sa.Uuid),
    instant("occurred_at", nullable=False),
    instant("corrected_at"),
    sa.Column("budget_ids", sa.ARRAY(sa.Uuid)),
    instant("budgeted_at"),
    sa.CheckConstraint("status IN ('completed', 'failed', 'cancelled', 'incomplete')", name="status"),
    sa.CheckConstraint("cost >= 0", name="cost"),
    sa.Index("ix_usage_records_page", "organization_id", "occurred_at", "invocation_id"),
    sa.Index(
        "ix_usage_records_user",
        "organization_id",
        "user_id",
        "occurred_at",
        "invocation_id",
        postgresql_where=sa.text("user_id IS NOT NULL"),
    ),
    sa.Index("ix_usage_records_occurred_at", "occurred_at", postgresql_using="brin"),
)

budgets = sa.Table(
    "budgets",
    metadata,
    id_column(),
    sa.Column("organization_id", sa.ForeignKey("organizations.id"), nullable=False),
    sa.Column("subject_kind", sa.Text, nullable=False),
    sa.Column("subject_id", sa.Uuid, nullable=False),
    sa.Column("model", sa.Text),
    sa.Column("unit", sa.Text, nullable=False),
    sa.Column("period", sa.Text, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("spent", sa.BigInteger, nullable=False, server_default=_ZERO),
    sa.Column("held", sa.BigInteger, nullable=False, server_default=_ZERO),
    instant("starts_at", nullable=False),
    sa.Column("alerted_share", sa.Integer, nullable=False, server_default=_ZERO),
    created_at(),
    sa.CheckConstraint("subject_kind IN ('api_key', 'user', 'identity', 'deployment')", name="subject_kind"),
    sa.CheckConstraint("unit IN ('credits', 'requests', 'tokens')", name="unit"),
    sa.CheckConstraint("period IN ('once', 'minute', 'day', 'week', 'month')", name="period"),
    sa.CheckConstraint("(unit = 'credits') = (period <> 'minute')", name="unit_of_period"),
    sa.CheckConstraint("amount BETWEEN 0 AND 1000000000000000", name="amount"),
    sa.CheckConstraint("spent >= 0", name="spent"),
    sa.CheckConstraint("held >= 0", name="held"),
    sa.UniqueConstraint(
        "organization_id",
        "subject_id",
        "unit",
        "period",
        "model",
        name="uq_budgets_of_subject",
        postgresql_nulls_not_distinct=True,
    ),
    sa.Index("ix_budgets_organization_id_id", "organization_id", "id"),
)

budget_alerts = sa.Table(
    "budget_alerts",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    sa.Column("organization_id", sa.Uuid, nullable=False),
    sa.Column("budget_id", sa.Uuid, nullable=False),
    sa.Column("share", sa.Integer, nullable=False),
    sa.Column("details", JSONB, nullable=False),
    instant("at", nullable=False, server_default=sa.func.now()),
)

key_models = sa.Table(
    "key_models",
    metadata,
    sa.Column("organization_id", sa.ForeignKey("organizations.id"), primary_key=True),
    sa.Column("api_key_id", sa.ForeignKey("api_keys.id"), primary_key=True),
    sa.Column("models", sa.ARRAY(sa.Text), nullable=False),
)

ledger_entries = sa.Table(
    "ledger_entries",
    metadata,
    sa.Column("organization_id", sa.Uuid, nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("reference", sa.Text, nullable=False),
    sa.Column("amount", sa.BigInteger, nullable=False),
    sa.Column("balance_after", sa.BigInteger, nullable=False),
    instant("occurred_at", nullable=False),
    sa.PrimaryKeyConstraint("organization_id", "version"),
    sa.UniqueConstraint("organization_id", "kind", "reference"),
    sa.CheckConstraint("kind IN ('top_up', 'charge', 'correction', 'adjustment', 'storage')", name="kind"),
    sa.CheckConstraint("amount <> 0", name="amount"),
)

_ATTRIBUTION = ("user_id", "identity_id", "principal_id", "deployment_id", "api_key_id", "distribution_id")
_SUMS = ("invocations", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")


def _sums(name: str, step: str, *more: sa.Index) -> sa.Table:
    return sa.Table(
        name,
        metadata,
        sa.Column("organization_id", sa.Uuid, nullable=False),
        instant(step, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        *(sa.Column(column, sa.Uuid) for column in _ATTRIBUTION),
        *(sa.Column(column, sa.BigInteger, nullable=False) for column in _SUMS),
        sa.Column("cache_write_tokens", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.UniqueConstraint(
            "organization_id",
            step,
            "model",
            *_ATTRIBUTION,
            name=f"uq_{name}_group",
            postgresql_nulls_not_distinct=True,
        ),
        *more,
    )


usage_hours = _sums("usage_hours", "hour", sa.Index("ix_usage_hours_hour", "hour", postgresql_using="brin"))
usage_days = _sums("usage_days", "day")

usage_rollup = sa.Table(
    "usage_rollup",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    instant("rolled_up_to", nullable=False),
    sa.CheckConstraint("id = 1", name="one_row"),
)

storage_days = sa.Table(
    "storage_days",
    metadata,
    sa.Column("organization_id", sa.Uuid, nullable=False),
    sa.Column("day", sa.Date, nullable=False),
    sa.Column("stored_bytes", sa.BigInteger, nullable=False),
    sa.Column("byte_microseconds", sa.Numeric(40, 0), nullable=False),
    sa.Column("price", sa.BigInteger),
    sa.Column("cost", sa.BigInteger),
    sa.Column("remainder", sa.Numeric(40, 0)),
    instant("charged_at"),
    sa.PrimaryKeyConstraint("organization_id", "day"),
    sa.CheckConstraint("price BETWEEN 0 AND 10000000000", name="price"),
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
    sa.CheckConstraint("id = 1", name="one_row"),
)
