"""Balances, invocations, usage and the ledger, which is append-only."""

import sqlalchemy as sa
from alembic import op

from shared.migrations.functions import load_function

revision = "0003"
down_revision = "0002"

INSTANT = sa.DateTime(timezone=True)
_ZERO = sa.text("0")
# A hot balance is updated several hundred times a second: room on its page for the new versions, and early vacuum.
_HOT = "fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000"
# Every call leaves two dead rows here.
_EAGER_VACUUM = "autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_insert_scale_factor = 0.05"
_TRIGGERS = (("append_only", "UPDATE OR DELETE", "ROW"), ("never_emptied", "TRUNCATE", "STATEMENT"))


def upgrade() -> None:
    """Create the tables and the triggers of the ledger."""
    _create_balances()
    _create_invocations()
    _create_usage()
    op.execute(f"ALTER TABLE credit_balances SET ({_HOT})")
    op.execute(f"ALTER TABLE invocations SET ({_EAGER_VACUUM})")
    load_function(op.get_bind(), "refuse_ledger_change")
    for trigger, changes, each in _TRIGGERS:
        op.execute(
            f"CREATE TRIGGER {trigger} BEFORE {changes} ON ledger_entries"
            f" FOR EACH {each} EXECUTE FUNCTION refuse_ledger_change()"
        )


def _create_balances() -> None:
    op.create_table(
        "credit_balances",
        sa.Column("organization_id", sa.Uuid, sa.ForeignKey("organizations.id"), primary_key=True),
        sa.Column("posted", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("held", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("policy", sa.Text, nullable=False, server_default=sa.text("'active'")),
        sa.Column("overdraft", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("spending_limit", sa.BigInteger),
        sa.Column("spent", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("spent_month", sa.Date, nullable=False, server_default=sa.text("'1970-01-01'")),
        sa.Column("version", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.CheckConstraint("posted BETWEEN -4000000000000000000 AND 4000000000000000000", name="posted"),
        sa.CheckConstraint("held >= 0", name="held"),
        sa.CheckConstraint("policy IN ('active', 'limit', 'suspended')", name="policy"),
        sa.CheckConstraint("overdraft BETWEEN 0 AND 1000000000000000", name="overdraft"),
        sa.CheckConstraint("spending_limit BETWEEN 0 AND 1000000000000000", name="spending_limit"),
        sa.CheckConstraint("policy <> 'limit' OR spending_limit IS NOT NULL", name="limited"),
    )
    op.create_table(
        "ledger_entries",
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("reference", sa.Text, nullable=False),
        sa.Column("amount", sa.BigInteger, nullable=False),
        sa.Column("balance_after", sa.BigInteger, nullable=False),
        sa.Column("occurred_at", INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("organization_id", "version"),
        sa.UniqueConstraint("organization_id", "kind", "reference"),
        sa.CheckConstraint("kind IN ('top_up', 'charge', 'correction', 'adjustment')", name="kind"),
        sa.CheckConstraint("amount <> 0", name="amount"),
    )


def _create_invocations() -> None:
    op.create_table(
        "invocations",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("state", sa.Text, nullable=False, server_default=sa.text("'held'")),
        sa.Column("hold", sa.BigInteger, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("prompt_price", sa.BigInteger, nullable=False),
        sa.Column("completion_price", sa.BigInteger, nullable=False),
        sa.Column("estimated_prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("streamed_tokens", sa.BigInteger, nullable=False, server_default=_ZERO),
        sa.Column("request_hash", sa.LargeBinary),
        sa.Column("dispatch_token", sa.Uuid),
        sa.Column("user_id", sa.Uuid),
        sa.Column("identity_id", sa.Uuid),
        sa.Column("principal_id", sa.Uuid),
        sa.Column("deployment_id", sa.Uuid),
        sa.Column("created_at", INSTANT, nullable=False, server_default=sa.text("now()")),
        sa.Column("lease_until", INSTANT, nullable=False),
        sa.Column("ended_at", INSTANT),
        sa.CheckConstraint(
            "state IN ('held', 'dispatched', 'unresolved', 'settled', 'voided', 'expired')", name="state"
        ),
        sa.CheckConstraint("hold BETWEEN 0 AND 2000000000000000", name="hold"),
        sa.CheckConstraint("prompt_price BETWEEN 0 AND 1000000000000", name="prompt_price"),
        sa.CheckConstraint("completion_price BETWEEN 0 AND 1000000000000", name="completion_price"),
    )
    op.create_index(
        "ix_invocations_open",
        "invocations",
        ["lease_until"],
        postgresql_where=sa.text("state IN ('held', 'dispatched', 'unresolved')"),
    )
    op.create_index("ix_invocations_created_at", "invocations", ["created_at"], postgresql_using="brin")


def _create_usage() -> None:
    op.create_table(
        "usage_records",
        sa.Column("invocation_id", sa.Uuid, primary_key=True),
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("provider", sa.Text),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("is_estimated", sa.Boolean, nullable=False),
        sa.Column("user_id", sa.Uuid),
        sa.Column("identity_id", sa.Uuid),
        sa.Column("principal_id", sa.Uuid),
        sa.Column("deployment_id", sa.Uuid),
        sa.Column("occurred_at", INSTANT, nullable=False),
        sa.Column("corrected_at", INSTANT),
        sa.CheckConstraint("status IN ('completed', 'failed', 'cancelled', 'incomplete')", name="status"),
        sa.CheckConstraint("cost >= 0", name="cost"),
    )
    op.create_index(
        "ix_usage_records_page", "usage_records", ["organization_id", "occurred_at", "invocation_id"]
    )
    op.create_index(
        "ix_usage_records_user",
        "usage_records",
        ["organization_id", "user_id", "occurred_at", "invocation_id"],
        postgresql_where=sa.text("user_id IS NOT NULL"),
    )
    op.create_index("ix_usage_records_occurred_at", "usage_records", ["occurred_at"], postgresql_using="brin")
    op.create_table(
        "usage_hours",
        sa.Column("organization_id", sa.Uuid, nullable=False),
        sa.Column("hour", INSTANT, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("user_id", sa.Uuid),
        sa.Column("identity_id", sa.Uuid),
        sa.Column("principal_id", sa.Uuid),
        sa.Column("deployment_id", sa.Uuid),
        sa.Column("invocations", sa.BigInteger, nullable=False),
        sa.Column("prompt_tokens", sa.BigInteger, nullable=False),
        sa.Column("completion_tokens", sa.BigInteger, nullable=False),
        sa.Column("cached_tokens", sa.BigInteger, nullable=False),
        sa.Column("reasoning_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost", sa.BigInteger, nullable=False),
        sa.UniqueConstraint(
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
    )
    op.create_index("ix_usage_hours_hour", "usage_hours", ["hour"])
    op.create_table(
        "usage_rollup",
        sa.Column("id", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("rolled_up_to", INSTANT, nullable=False),
        sa.CheckConstraint("id = 1", name="one_row"),
    )
    # Nothing is rolled up yet: whatever there is, is newer than this.
    op.execute("INSERT INTO usage_rollup (id, rolled_up_to) VALUES (1, 'epoch')")
