"""A second blob store, while content is moved from one to the other."""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"


def upgrade() -> None:
    """Let there be two, and say which of them have content or are written to."""
    op.add_column("blob_stores", sa.Column("is_used", sa.Boolean, nullable=False, server_default=sa.true()))
    op.drop_constraint("ck_blob_stores_one_row", "blob_stores")
    op.create_check_constraint("number", "blob_stores", "number IN (1, 2)")
