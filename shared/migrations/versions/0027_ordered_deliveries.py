"""Messages that keep their order, and the number that a message carries."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"

_TABLE = "deliveries"


def upgrade() -> None:
    """Add the place of a message in its destination's order; messages that are there have none."""
    op.add_column(_TABLE, sa.Column("place", sa.BigInteger))
    op.add_column(_TABLE, sa.Column("is_held", sa.Boolean, nullable=False, server_default=sa.text("false")))
    op.add_column(_TABLE, sa.Column("sequence", sa.BigInteger))
    for name, columns, where in (
        ("order", ["destination_id", "place"], "place IS NOT NULL"),
        ("held", ["destination_id", "place"], "is_held"),
        (
            "head",
            ["destination_id"],
            "place IS NOT NULL AND NOT is_held AND state IN ('Waiting', 'Sending')",
        ),
    ):
        op.create_index(
            f"ix_deliveries_{name}",
            _TABLE,
            columns,
            unique=name == "order",
            postgresql_where=sa.text(where),
        )
