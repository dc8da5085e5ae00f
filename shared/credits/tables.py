"""The tables of credits; only SQL functions write balances, holds, entries and usage records.

A trigger refuses updates and deletes of `ledger_entries`. All amounts are µcr.
"""

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

from shared.db.schema import created_at, id_column, instant, metadata, one_of, required, unique_group

_ZERO = sa.text("0")


_ATTRIBUTION = ("user_id", "identity_id", "principal_id", "deployment_id", "api_key_id", "distribution_id")


def _attribution() -> Iterator[sa.Column[Any]]:
    """Yield the columns of a call's attribution."""
    return (sa.Column(name, sa.Uuid) for name in _ATTRIBUTION)


# No foreign key references this table: checking the key would lock a row that every call updates, which halves the
# throughput of an organization.
credit_balances = sa.Table(
    "credit_balances",
    metadata,
    sa.Column("organization_id", sa.Uuid, sa.ForeignKey("organizations.id"), primary_key=True),
    required("posted", sa.BigInteger, server_default=_ZERO),
    required("held", sa.BigInteger, server_default=_ZERO),
    required("policy", sa.Text, server_default=sa.text("'active'")),
    required("overdraft", sa.BigInteger, server_default=_ZERO),
    sa.Column("spending_limit", sa.BigInteger),
    required("spent", sa.BigInteger, server_default=_ZERO),
    required("spent_month", sa.Date, server_default=sa.text("'1970-01-01'")),
    required("version", sa.BigInteger, server_default=_ZERO),
    instant("storage_overdue_since"),
    instant("storage_refused_from"),
    required("calls", sa.Integer, server_default=_ZERO),
    required("limits", sa.Integer, server_default=_ZERO),
    instant("suspended_by_owner_at"),
    instant("suspended_by_operator_at"),
    sa.CheckConstraint("posted BETWEEN -4000000000000000000 AND 4000000000000000000", name="posted"),
    sa.CheckConstraint("held >= 0", name="held"),
    sa.CheckConstraint("calls >= 0", name="calls"),
    sa.CheckConstraint("limits >= 0", name="limits"),
    one_of("policy", "active", "limit", "suspended"),
    sa.CheckConstraint("overdraft BETWEEN 0 AND 1000000000000000", name="overdraft"),
    sa.CheckConstraint("spending_limit BETWEEN 0 AND 1000000000000000", name="spending_limit"),
    sa.CheckConstraint("policy <> 'limit' OR spending_limit IS NOT NULL", name="limited"),
    sa.CheckConstraint("(storage_overdue_since IS NULL) = (storage_refused_from IS NULL)", name="overdue"),
)

invocations = sa.Table(
    "invocations",
    metadata,
    id_column(),
    required("organization_id", sa.Uuid),
    required("state", sa.Text, server_default=sa.text("'held'")),
    required("hold", sa.BigInteger),
    required("model", sa.Text),
    required("prompt_price", sa.BigInteger),
    required("completion_price", sa.BigInteger),
    sa.Column("cached_prompt_price", sa.BigInteger),
    sa.Column("cache_write_price", sa.BigInteger),
    sa.Column("reasoning_price", sa.BigInteger),
    required("request_price", sa.BigInteger, server_default=_ZERO),
    required("estimated_prompt_tokens", sa.BigInteger),
    required("streamed_tokens", sa.BigInteger, server_default=_ZERO),
    sa.Column("request_hash", sa.LargeBinary),
    sa.Column("dispatch_token", sa.Uuid),
    *_attribution(),
    sa.Column("provider", sa.Text),
    sa.Column("budget_ids", sa.ARRAY(sa.Uuid)),
    instant("budgeted_at"),
    required("held_tokens", sa.BigInteger, server_default=_ZERO),
    created_at(),
    instant("lease_until", nullable=False),
    instant("ended_at"),
    one_of("state", "held", "dispatched", "unresolved", "settled", "voided", "expired"),
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
    sa.Index(
        "ix_invocations_open_of_organization",
        "organization_id",
        "created_at",
        "id",
        postgresql_where=sa.text("state IN ('held', 'dispatched', 'unresolved')"),
    ),
    sa.Index("ix_invocations_created_at", "created_at", postgresql_using="brin"),
)

usage_records = sa.Table(
    "usage_records",
    metadata,
    id_column("invocation_id"),
    required("organization_id", sa.Uuid),
    required("model", sa.Text),
    sa.Column("provider", sa.Text),
    required("prompt_tokens", sa.BigInteger),
    required("completion_tokens", sa.BigInteger),
    required("cached_tokens", sa.BigInteger),
    required("cache_write_tokens", sa.BigInteger, server_default=_ZERO),
    required("reasoning_tokens", sa.BigInteger),
    required("cost", sa.BigInteger),
    required("status", sa.Text),
    required("is_estimated", sa.Boolean),
    *_attribution(),
    instant("occurred_at", nullable=False),
    instant("corrected_at"),
    sa.Column("budget_ids", sa.ARRAY(sa.Uuid)),
    instant("budgeted_at"),
    one_of("status", "completed", "failed", "cancelled", "incomplete"),
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
    # One index for each filter of the listing. These indexes omit the invocation id: records with equal times are
    # sorted when they are read.
    sa.Index("ix_usage_records_model", "organization_id", "model", "occurred_at"),
    sa.Index(
        "ix_usage_records_principal",
        sa.text("coalesce(principal_id, identity_id, user_id)"),
        "occurred_at",
    ),
    sa.Index(
        "ix_usage_records_api_key",
        "api_key_id",
        "occurred_at",
        postgresql_where=sa.text("api_key_id IS NOT NULL"),
    ),
    sa.Index(
        "ix_usage_records_unsuccessful",
        "organization_id",
        "status",
        "occurred_at",
        postgresql_where=sa.text("status <> 'completed'"),
    ),
    sa.Index("ix_usage_records_occurred_at", "occurred_at", postgresql_using="brin"),
)

budgets = sa.Table(
    "budgets",
    metadata,
    id_column(),
    required("organization_id", sa.ForeignKey("organizations.id")),
    required("subject_kind", sa.Text),
    required("subject_id", sa.Uuid),
    sa.Column("model", sa.Text),
    required("unit", sa.Text),
    required("period", sa.Text),
    required("amount", sa.BigInteger),
    required("spent", sa.BigInteger, server_default=_ZERO),
    required("held", sa.BigInteger, server_default=_ZERO),
    instant("starts_at", nullable=False),
    required("alerted_share", sa.Integer, server_default=_ZERO),
    created_at(),
    one_of("subject_kind", "api_key", "user", "identity", "deployment"),
    one_of("unit", "credits", "requests", "tokens"),
    one_of("period", "once", "minute", "day", "week", "month"),
    sa.CheckConstraint("(unit = 'credits') = (period <> 'minute')", name="unit_of_period"),
    sa.CheckConstraint("amount BETWEEN 0 AND 1000000000000000", name="amount"),
    sa.CheckConstraint("spent >= 0", name="spent"),
    sa.CheckConstraint("held >= 0", name="held"),
    unique_group("uq_budgets_of_subject", "organization_id", "subject_id", "unit", "period", "model"),
    sa.Index("ix_budgets_organization_id_id", "organization_id", "id"),
)

budget_alerts = sa.Table(
    "budget_alerts",
    metadata,
    sa.Column("id", sa.BigInteger, sa.Identity(always=True), primary_key=True),
    required("organization_id", sa.Uuid),
    required("budget_id", sa.Uuid),
    required("share", sa.Integer),
    required("details", JSONB),
    instant("at", nullable=False, server_default=sa.func.now()),
)

key_models = sa.Table(
    "key_models",
    metadata,
    sa.Column("organization_id", sa.ForeignKey("organizations.id"), primary_key=True),
    sa.Column("api_key_id", sa.ForeignKey("api_keys.id"), primary_key=True),
    required("models", sa.ARRAY(sa.Text)),
)

ledger_entries = sa.Table(
    "ledger_entries",
    metadata,
    required("organization_id", sa.Uuid),
    required("version", sa.BigInteger),
    required("kind", sa.Text),
    required("reference", sa.Text),
    required("amount", sa.BigInteger),
    required("balance_after", sa.BigInteger),
    instant("occurred_at", nullable=False),
    sa.PrimaryKeyConstraint("organization_id", "version"),
    sa.UniqueConstraint("organization_id", "kind", "reference"),
    one_of("kind", "top_up", "charge", "correction", "adjustment", "storage"),
    sa.CheckConstraint("amount <> 0", name="amount"),
)

_SUMS = ("invocations", "prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "cost")


def _sums(name: str, step: str, *more: sa.Index) -> sa.Table:
    return sa.Table(
        name,
        metadata,
        required("organization_id", sa.Uuid),
        instant(step, nullable=False),
        required("model", sa.Text),
        *_attribution(),
        *(sa.Column(column, sa.BigInteger, nullable=False) for column in _SUMS),
        required("cache_write_tokens", sa.BigInteger, server_default=_ZERO),
        unique_group(f"uq_{name}_group", "organization_id", step, "model", *_ATTRIBUTION),
        *more,
    )


usage_hours = _sums("usage_hours", "hour", sa.Index("ix_usage_hours_hour", "hour", postgresql_using="brin"))
usage_days = _sums(
    "usage_days",
    "day",
    *(
        sa.Index(f"ix_usage_days_{column}", column, "day", postgresql_where=sa.text(f"{column} IS NOT NULL"))
        for column in ("api_key_id", "deployment_id")
    ),
)

usage_rollup = sa.Table(
    "usage_rollup",
    metadata,
    sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
    instant("rolled_up_to", nullable=False),
    instant("pruned_to", nullable=False, server_default=sa.text("'-infinity'")),
    sa.CheckConstraint("id = 1", name="one_row"),
)

pruned_usage = sa.Table(
    "pruned_usage",
    metadata,
    required("organization_id", sa.Uuid),
    sa.Column("budget_id", sa.Uuid),
    instant("starts_at"),
    required("amount", sa.Numeric(40, 0)),
    unique_group("uq_pruned_usage_of_organization", "organization_id", "budget_id", "starts_at"),
    sa.CheckConstraint("(budget_id IS NULL) = (starts_at IS NULL)", name="budgeted"),
)
