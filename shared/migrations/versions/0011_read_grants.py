"""The read grants of one file, to be listed."""

from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Add the index."""
    op.create_index("ix_read_grants_file_id_id", "read_grants", ["file_id", "id"])
