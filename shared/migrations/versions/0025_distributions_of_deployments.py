"""An index for the newest distributions that a deployment answers, of which its card tells the networks."""

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    """Make the index."""
    op.create_index(
        "ix_distributions_enabled_of_deployment",
        "distributions",
        ["deployment_id", "id"],
        postgresql_where=sa.text("disabled_at IS NULL"),
    )
