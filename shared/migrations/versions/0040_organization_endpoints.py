"""Where organizations are notified, and the secrets that those messages are signed with."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "organization_endpoints",
        sa.Column("organization_id", sa.Uuid, sa.ForeignKey("organizations.id"), primary_key=True),
        sa.Column("url_encrypted", sa.LargeBinary, nullable=False),
        sa.Column("webhook_secret_encrypted", sa.LargeBinary, nullable=False),
        sa.Column("disabled_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=sa.func.now()),
    )
