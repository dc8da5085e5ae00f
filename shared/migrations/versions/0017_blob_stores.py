"""The one blob store of this database, by the id that its marker holds."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    """Make the table; the first process that uses the store fills it."""
    op.create_table(
        "blob_stores",
        sa.Column("number", sa.SmallInteger, primary_key=True, autoincrement=False),
        sa.Column("store_id", sa.Uuid, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.CheckConstraint("number = 1", name="one_row"),
    )
