"""Indexes for lists of a deployment's tasks, of an organization's agents, and of the files of tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"

_LAST_CHANGED = [sa.text("status_at DESC"), sa.text("id DESC")]


def upgrade() -> None:
    """Make the indexes."""
    for name, columns in (
        ("ix_tasks_of_deployment", []),
        ("ix_tasks_of_deployment_by_context", ["context_id"]),
        ("ix_tasks_of_deployment_by_state", ["state"]),
    ):
        op.create_index(
            name,
            "tasks",
            ["deployment_id", *columns, *_LAST_CHANGED],
            postgresql_where=sa.text("is_visible"),
        )
    op.create_index(
        "ix_deployments_enabled_of_organization",
        "deployments",
        ["organization_id", "id"],
        postgresql_where=sa.text("disabled_at IS NULL"),
    )
    op.create_index("ix_file_references_reference_id", "file_references", ["reference_id", "kind"])
