"""Imports that wait for somebody, and failed ones that can be retried."""

import sqlalchemy as sa
from alembic import op

revision = "0048"
down_revision = "0047"

_HELD = sa.text("state = 'Held'")


def upgrade() -> None:
    """Let imports be held, and keep what it takes to fetch those that failed."""
    op.add_column(
        "media_imports",
        sa.Column("forgiven_attempts", sa.Integer, nullable=False, server_default=sa.text("0")),
    )
    for name in ("state", "failed", "headers"):
        op.drop_constraint(op.f(f"ck_media_imports_{name}"), "media_imports")
    for name, condition in (
        ("state", "state IN ('Queued', 'Fetching', 'Held', 'Stored', 'Failed')"),
        ("failed", "state NOT IN ('Failed', 'Held') OR code IS NOT NULL"),
        ("headers", "state <> 'Stored' OR headers_encrypted IS NULL"),
    ):
        op.create_check_constraint(op.f(f"ck_media_imports_{name}"), "media_imports", condition)
    op.create_index(
        "ix_media_imports_held", "media_imports", ["distribution_id", "created_at"], postgresql_where=_HELD
    )
    op.create_index("ix_media_imports_held_due", "media_imports", ["due_at"], postgresql_where=_HELD)
