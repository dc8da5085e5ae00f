"""What has become due, by whom it belongs to, so that a sweep can take some of each."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Index deadlines by organization, expiries by distribution and ticks by deployment."""
    op.create_index(
        "ix_files_due_by_organization",
        "files",
        ["organization_id", "retention_expires_at"],
        postgresql_where=sa.text("state = 'Available' AND retention_expires_at IS NOT NULL"),
    )
    op.create_index(
        "ix_expiring_media_distribution_id_expires_at", "expiring_media", ["distribution_id", "expires_at"]
    )
    op.create_index(
        "ix_schedules_due_by_deployment",
        "schedules",
        ["deployment_id", "next_at"],
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
