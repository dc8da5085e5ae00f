"""An index for each list with each of its filters, so that a page costs what is on it."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"

_SCOPE = ["caller_id", "principal_id", "deployment_id"]
_LAST_CHANGED = [sa.text("status_at DESC"), sa.text("id DESC")]


def upgrade() -> None:
    """Make the new indexes, then drop those that they replace."""
    op.create_index("ix_files_listed_by_owner", "files", ["owner_id", "purpose", "state", "id"])
    op.create_index("ix_files_listed_by_organization", "files", ["organization_id", "purpose", "state", "id"])
    op.create_index(
        "ix_media_imports_ended",
        "media_imports",
        ["distribution_id", "state", "id"],
        postgresql_where=sa.text("state IN ('Stored', 'Failed')"),
    )
    op.create_index(
        "ix_deliveries_ended",
        "deliveries",
        ["destination_id", "state", "id"],
        postgresql_where=sa.text("state IN ('Delivered', 'Dead')"),
    )
    is_visible = sa.text("is_visible")
    for name, column in (("ix_tasks_by_context", "context_id"), ("ix_tasks_by_state", "state")):
        op.create_index(name, "tasks", [*_SCOPE, column, *_LAST_CHANGED], postgresql_where=is_visible)
    op.create_index(
        "ix_deployments_enabled", "deployments", ["id"], postgresql_where=sa.text("disabled_at IS NULL")
    )
    for table, replaced in (
        ("files", "ix_files_owner_id_id"),
        ("files", "ix_files_organization_id_id"),
        ("media_imports", "ix_media_imports_failed"),
        ("tasks", "ix_tasks_context"),
    ):
        op.drop_index(replaced, table)
