"""Sessions of the console, and the links that begin them."""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"

_INSTANT = sa.DateTime(timezone=True)


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "console_links",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("user_id", sa.Uuid, sa.ForeignKey("users.id"), nullable=False),
        sa.Column("token_hash", sa.LargeBinary, nullable=False),
        sa.Column("expires_at", _INSTANT, nullable=False),
        sa.Column("used_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=sa.func.now()),
        sa.UniqueConstraint("token_hash", name="uq_console_links_token_hash"),
    )
    op.create_index("ix_console_links_expires_at", "console_links", ["expires_at"])
    op.create_table(
        "console_sessions",
        sa.Column("id", sa.Uuid, primary_key=True),
        sa.Column("user_id", sa.Uuid, sa.ForeignKey("users.id"), nullable=False),
        sa.Column("organization_id", sa.Uuid, sa.ForeignKey("organizations.id")),
        sa.Column("hash", sa.LargeBinary, nullable=False),
        sa.Column("stepped_up_at", _INSTANT, nullable=False, server_default=sa.func.now()),
        sa.Column("last_used_at", _INSTANT, nullable=False, server_default=sa.func.now()),
        sa.Column("expires_at", _INSTANT, nullable=False),
        sa.Column("revoked_at", _INSTANT),
        sa.Column("created_at", _INSTANT, nullable=False, server_default=sa.func.now()),
        sa.UniqueConstraint("hash", name="uq_console_sessions_hash"),
    )
    op.create_index("ix_console_sessions_user_id", "console_sessions", ["user_id"])
    op.create_index("ix_console_sessions_expires_at", "console_sessions", ["expires_at"])
