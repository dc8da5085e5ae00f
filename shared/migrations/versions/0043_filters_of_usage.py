"""An index for each filter of the list of usage records, and one for an organization's open holds."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"

_PRINCIPAL = sa.text("coalesce(principal_id, identity_id, user_id)")


def upgrade() -> None:
    """Make the indexes."""
    op.create_index("ix_usage_records_model", "usage_records", ["organization_id", "model", "occurred_at"])
    op.create_index("ix_usage_records_principal", "usage_records", [_PRINCIPAL, "occurred_at"])
    op.create_index(
        "ix_usage_records_api_key",
        "usage_records",
        ["api_key_id", "occurred_at"],
        postgresql_where=sa.text("api_key_id IS NOT NULL"),
    )
    op.create_index(
        "ix_usage_records_unsuccessful",
        "usage_records",
        ["organization_id", "status", "occurred_at"],
        postgresql_where=sa.text("status <> 'completed'"),
    )
    op.create_index(
        "ix_invocations_open_of_organization",
        "invocations",
        ["organization_id", "id"],
        postgresql_where=sa.text("state IN ('held', 'dispatched', 'unresolved')"),
    )
