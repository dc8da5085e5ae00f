"""Indexes that give keys, client secrets and versions of an owner in the order in which they are listed."""

from alembic import op

revision = "0053"
down_revision = "0052"

_REPLACED = (
    ("api_keys", "user_id"),
    ("api_keys", "organization_id"),
    ("client_credentials", "deployment_id"),
)


def upgrade() -> None:
    """Make them; those that had no order are no longer needed."""
    for table, owner in _REPLACED:
        op.create_index(f"ix_{table}_{owner}_id", table, [owner, "id"])
        op.drop_index(f"ix_{table}_{owner}", table)
    op.create_index("ix_versions_deployment_id_id", "versions", ["deployment_id", "id"])
