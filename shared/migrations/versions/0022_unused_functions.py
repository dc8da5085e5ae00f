"""A function that no code has called for a release: `credits_renew` took its place."""

from alembic import op

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    """Drop it where an earlier release has made it."""
    op.execute("DROP FUNCTION IF EXISTS credits_note_streamed")
